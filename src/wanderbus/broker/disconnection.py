"""An operator's hook for devices that disconnect, reconnect and leave (SPEC G-24).

The hook is one pure function, registered when the broker is made. It decides as data: what it returns is carried out
by the broker and written to the log, so a restart asks no hook about the past.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from wanderbus.limits import REASON_CHARACTERS_MAX


class DeviceChange(msgspec.Struct, frozen=True):
    """What a hook is asked about: a device of ``user``, member of ``session``, changed because of ``reason``.

    ``now_us`` is the broker's clock, microseconds since the Unix epoch. ``away_s`` is how long a device was away that
    comes back or leaves. ``waiting`` and ``waiting_bytes`` count what waits in the session. ``others_connected`` is
    whether the user can be reached by another device.
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
    """What the broker does about a change; without anything it keeps the session and its queue as always."""

    drop_waiting: bool = False
    """Drop what waits for this device and no other, under the reason ``hook``; not for one that has left."""

    grace_s: float | None = None
    """How long this device may be away this time, in place of ``device_grace_s``; for one that disconnects."""

    leave: bool = False
    """End its membership at once, as ``device_grace_s`` does in the end; for one that disconnects."""


Hook = Callable[[DeviceChange], Handling | None]
"""Decides about one change; None is the same as ``Handling()``."""

AS_ALWAYS: Final = Handling()

GRACE_S_MAX: Final = 10 * 366 * 86_400.0
"""A longer grace is refused: times of the broker's clock have to stay within its numbers."""


class DisconnectionHook:
    """The hook of one broker, if there is one, and how often it failed; a failure changes nothing."""

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook
        self.failed = 0
        """How often the hook raised, or returned what it may not."""

        self.last_failure = ""
        """The last failure, in a line for people."""

    @property
    def is_registered(self) -> bool:
        """Return whether there is a hook to ask."""
        return self._hook is not None

    def decide(self, change: DeviceChange) -> Handling:
        """Return what to do about ``change``."""
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
