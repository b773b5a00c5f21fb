"""Devices that were in a call here when their session left, and that call again to follow it.

A user of another domain who calls here may bring the session along (decision 0174). The call of a device that follows
its session to another server is another thing: it must not bring the session back. Nothing is stored.
"""

from __future__ import annotations

from typing import Final

FOLLOW_S: Final = 60.0
"""Time from the end of its call in which a device follows its session; a later call is that of a visitor."""

FOLLOWERS_MAX: Final = 4_096
"""Largest number of devices that are remembered; the oldest is forgotten first."""


class Followers:
    """Devices that follow their sessions, each once; they are (user, device)."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}
        """Second until which each device is expected; the oldest is first."""

    def expect(self, device: tuple[str, str], now: float) -> None:
        """Expect a device to follow its session, which has left: its call here ends now."""
        self._until.pop(device, None)
        if len(self._until) >= FOLLOWERS_MAX:
            del self._until[next(iter(self._until))]
        self._until[device] = now + FOLLOW_S

    def has(self, device: tuple[str, str], now: float) -> bool:
        """Return whether a device that calls follows its session."""
        return self._until.get(device, now) > now

    def forget(self, device: tuple[str, str]) -> None:
        """Expect a device no longer: its call was redirected, or served."""
        self._until.pop(device, None)
