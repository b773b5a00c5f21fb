"""Changes of a device that an operator's hook decides about, and its decisions (SPEC G-24)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec


class DeviceChange(msgspec.Struct, frozen=True):
    """The argument of a hook: a device of ``user``, member of ``session``, changed because of ``reason``.

    ``now_us`` is the broker's clock, microseconds since the Unix epoch. ``away_s`` is how long a device that comes back
    or leaves was away. ``waiting`` and ``waiting_bytes`` count the notifications that wait in the session.
    ``others_connected`` is whether the user can be reached by another device.
    """

    change: Literal["disconnected", "reconnected", "left"]
    user: str
    session: str
    device: str
    reason: str
    now_us: int
    away_s: float
    waiting: int
    waiting_bytes: int
    others_connected: bool


class Handling(msgspec.Struct, frozen=True):
    """The decision of a hook; by default the broker keeps the session and its queue."""

    drop_waiting: bool = False
    """Drop the notifications for this device alone, with the reason ``hook``; no effect once the device has left."""

    grace_s: float | None = None
    """Time that this device may be away this once, in place of ``device_grace_s``; only when it disconnects."""

    leave: bool = False
    """End its membership at once, without waiting for ``device_grace_s``; only when it disconnects."""


Hook = Callable[[DeviceChange], Handling | None]
"""Decides about one change; None is the same as ``Handling()``."""


AS_ALWAYS: Final = Handling()
