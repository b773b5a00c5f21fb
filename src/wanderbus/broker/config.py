"""What an operator may set on a broker (SPEC Q-02)."""

from __future__ import annotations

import msgspec


class BrokerConfig(msgspec.Struct, frozen=True):
    """Bounds of one broker; every one is met by a refusal or a counted drop that names it."""

    server: str = "wb"
    """Name of this server: the origin in event and subscription ids."""

    queue_notifications_max: int = 10_000
    """Notifications that wait in one session (SPEC G-15); the oldest is dropped for a new one (G-16)."""

    unacknowledged_max: int = 256
    """Notifications sent to a device and not yet taken by its application."""

    subscriptions_max: int = 1_000
    """Subscriptions of one session."""

    sessions_max: int = 32
    """Sessions of one user."""

    devices_max: int = 32
    """Member devices of one session."""

    publishes_remembered: int = 1_024
    """Recent publishes of a device whose event ids can be told again when they are repeated."""

    device_grace_s: float = 7 * 86_400.0
    """A device away for longer is no longer a member of its session; the last one always is (SPEC X40)."""
