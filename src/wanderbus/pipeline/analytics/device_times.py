"""Times of one user's devices: absences and changes of address (SPEC E, T-08)."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from wanderbus.records import MOVED_AWAY


class Absence(NamedTuple):
    """A device was DISCONNECTED, from ``from_us`` up to ``to_us``; None while it still is.

    ``ended`` is ``connected``, ``left`` if it left its session instead, or None.
    """

    device: str
    from_us: int
    to_us: int | None
    reason: str
    ended: str | None


class Move(NamedTuple):
    """The data of a device came from ``address`` from ``moved_us`` on, and from ``former`` before."""

    device: str
    moved_us: int
    former: str
    address: str


class DevicePast(NamedTuple):
    """Absences of a device whose session goes to another server: present one, then begins, ends and sums of others."""

    away: tuple[int, str] | None
    was_connected: bool
    """True if it was connected until the session left."""
    ended: tuple[list[int], list[int], list[int]]


class DeviceTimes:
    """Status and address of the devices of one user, over the entries in order."""

    def __init__(self) -> None:
        self._changed: dict[str, Move] = {}
        """Last change of a device's address, until it is known whether another life of its agent began with it."""
        self.absences: list[Absence] = []
        self.moves: list[Move] = []
        self._connected: set[str] = set()
        self._away: dict[str, tuple[int, str]] = {}
        self._addresses: dict[str, str] = {}
        self._begins: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        self._sums: dict[str, list[int]] = {}

    def status(self, device: str, status: str, reason: str, at_us: int) -> None:
        """Note that a device became ``CONNECTED`` or ``DISCONNECTED``."""
        if status == "CONNECTED":
            self._connected.add(device)
            self._end(device, at_us, "connected")
        elif device in self._connected:
            self._connected.discard(device)
            self._away[device] = (at_us, reason)

    def started(self, at_us: int) -> None:
        """Note that the server started: nobody is connected to it yet."""
        for device in sorted(self._connected):
            self._away[device] = (at_us, "server started")
        self._connected.clear()

    def left(self, device: str, at_us: int) -> None:
        """Note that a device left its session: it is not away any longer, and its next address is no move."""
        self.stays(device)
        self._connected.discard(device)
        self._end(device, at_us, "left")
        self._addresses.pop(device, None)

    def leave_server(self, device: str) -> DevicePast:
        """Forget a device whose session leaves this server, and return its absences; its next address is no move."""
        self.stays(device)
        self._addresses.pop(device, None)
        away = self._away.pop(device, None)
        was_connected = device in self._connected or (away is not None and away[1] == MOVED_AWAY)
        self._connected.discard(device)
        begins, ends, sums = (each.pop(device, []) for each in (self._begins, self._ends, self._sums))
        return DevicePast(away, was_connected, (begins, ends, sums))

    def come_to_server(self, device: str, past: DevicePast, at_us: int) -> None:
        """Go on with a device whose session has come here: it is away until it connects."""
        self._connected.discard(device)
        if past.away is not None or past.was_connected:
            self._away[device] = past.away or (at_us, MOVED_AWAY)
        self._begins[device], self._ends[device], self._sums[device] = past.ended

    def address(self, device: str, address: str, at_us: int) -> None:
        """Note the address of a device's data."""
        former = self._addresses.get(device)
        self._addresses[device] = address
        if former is not None and former != address:
            self.stays(device)
            self._changed[device] = Move(device, at_us, former, address)

    def stays(self, device: str) -> None:
        """Note that the present life of a device's agent had begun before its last change of address: it has moved."""
        if (move := self._changed.pop(device, None)) is not None:
            self.moves.append(move)

    def begins(self, device: str) -> None:
        """Note that another life of a device's agent begins, whose first address is no move of the former one."""
        self._changed.pop(device, None)

    def close(self) -> None:
        """Add the absences that have not ended, and the changes of address that nothing has followed."""
        for device in list(self._changed):
            self.stays(device)
        for device, (from_us, reason) in self._away.items():
            self.absences.append(Absence(device, from_us, None, reason, None))

    def away_us(self, device: str, from_us: int, to_us: int) -> int:
        """Return the microseconds between two times, the later of which is now, in which the device was away."""
        away = self._away_until(device, to_us) - self._away_until(device, from_us)
        if (present := self._away.get(device)) is not None:
            away += max(0, to_us - max(from_us, present[0]))
        return away

    def _away_until(self, device: str, at_us: int) -> int:
        """Return the microseconds of all absences that have ended, as far as they are before a time."""
        begins = self._begins.get(device, [])
        place = bisect_right(begins, at_us) - 1
        if place < 0:
            return 0
        return self._sums[device][place] + min(at_us, self._ends[device][place]) - begins[place]

    def _end(self, device: str, at_us: int, how: str) -> None:
        if (away := self._away.pop(device, None)) is None:
            return
        from_us, reason = away
        self.absences.append(Absence(device, from_us, at_us, reason, how))
        begins, ends, sums = (each.setdefault(device, []) for each in (self._begins, self._ends, self._sums))
        sums.append(sums[-1] + ends[-1] - begins[-1] if sums else 0)
        begins.append(from_us)
        ends.append(at_us)
