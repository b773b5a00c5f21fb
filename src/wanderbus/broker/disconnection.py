"""An operator's hook for devices that disconnect, reconnect and leave (SPEC G-24).

The hook is one pure function, registered when the broker is made. It returns its decision as data. The broker carries
the decision out and writes it to the log, so a restart does not call the hook for past changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from wanderbus.limits import REASON_CHARACTERS_MAX


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

GRACE_S_MAX: Final = 10 * 366 * 86_400.0
"""A longer grace is refused, because it would overflow the broker's clock."""


class DisconnectionHook:
    """The hook of one broker, if any, and the count of its failures; a failure changes nothing."""

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook
        self.failed = 0
        """Number of times that the hook raised, or returned an invalid value."""

        self.last_failure = ""
        """The last failure, as one line of text."""

    @property
    def is_registered(self) -> bool:
        """Return whether a hook is registered."""
        return self._hook is not None

    def decide(self, change: DeviceChange) -> Handling:
        """Return the hook's decision about ``change``."""
        if self._hook is None:
            return AS_ALWAYS
        try:
            return _checked(self._hook(change))
        except Exception as error:
            self.failed += 1
            self.last_failure = f"disconnection hook: {type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
            return AS_ALWAYS


def _checked(handling: object) -> Handling:
    if handling is None:
        return AS_ALWAYS
    if not isinstance(handling, Handling):
        raise TypeError(f"the hook returned {type(handling).__name__}; return a Handling or None")
    if handling.grace_s is not None and not 0 <= handling.grace_s <= GRACE_S_MAX:
        raise ValueError(f"grace_s is {handling.grace_s}; it must be from 0 to {GRACE_S_MAX:.0f}")
    return handling
