"""Checks of every packet of a reliable UDP world, as packets leave and arrive.

The watcher has the keys and reads everything. It checks the two ends:

- A packet number is used once. Only what arrived unaltered is acknowledged: once as fresh, and at once.
- Nothing is sent beyond what the other side has granted.
- While nothing is received, the gaps between repeats of one DATA frame grow by the formula,
  ``gap[k + 1] = min(gap[k] * backoff_factor, timeout_max_s)`` with ``timeout_min_s <= gap[0] <= timeout_max_s``, and
  there are at most ``retries_max`` of them (SPEC F-05, F-06).
- A connection fails only after a silence: no packet was acknowledged that left in the last ``patience_min_s``.
- Addresses that are not the peer's get no more bytes than came from them (RFC 9000 8.1).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from wanderbus.machine import Address
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.interface import Secrets
from wanderbus.simulation.rudp.wire import KIND_OFFSET, RESET, Packet, Wiretap, ids_of

if TYPE_CHECKING:
    from wanderbus.simulation.rudp.party import End

INITIAL_GRANT: Final = 1024
"""DATA frames that may be sent before the first WINDOW: a constant of the protocol."""

REPLAY_WINDOW: Final = 1024
"""Age of a packet, in numbers behind the newest, from which it need not be accepted; nor one of an older key epoch."""

NOTHING: Final = Packet(-1, 0, 0, (), (), (), (), 0, False, False)

GRAIN_S: Final = 1e-6
"""Precision of timers."""


def patience_min_s(config: RudpConfig) -> float:
    """Return the least age of the last packet that arrives, for a connection to fail.

    That is the sum of the gaps after the first, of which a part may have passed when it left.
    """
    gap_s, patience_s = config.timeout_min_s, 0.0
    for _ in range(config.retries_max):
        gap_s = min(gap_s * config.backoff_factor, config.timeout_max_s)
        patience_s += gap_s
    return patience_s


class ConnectionDirection:
    """One direction of a connection, from ``end`` to its peer."""

    def __init__(self, end: End, config: RudpConfig, secrets: Secrets | None) -> None:
        self.end = end
        self.granted = INITIAL_GRANT
        self.sent: dict[bytes, Packet] = {}
        self.sent_at: dict[int, float] = {}
        self.arrived: set[int] = set()
        self.acknowledged: set[int] = set()
        self.due: list[int] = []
        """Packets that arrived just now and must be acknowledged in the same step."""
        self.quiet_since = 0.0
        """Time when the sending side last received something, or changed its path."""
        self.path_changed_at = -1.0
        """Time when the sending side last changed its path; on the new path it may acknowledge once more what arrived
        last, as it may in its last packets.
        """
        self.answered_at = 0.0
        """Departure time of the latest packet whose acknowledgement arrived."""
        self.times: defaultdict[int, list[float]] = defaultdict(list)
        self._together: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._config = config
        self._tap = Wiretap(secrets)
        self._newest = -1
        self._newest_arrived = NOTHING

    def leaves(self, datagram: bytes, back: ConnectionDirection, now: float) -> list[str]:
        """Record a packet that ``end`` sends; return the problems with it."""
        try:
            packet = self._tap.read(datagram)
        except (ValueError, struct.error) as error:
            return [f"sent what cannot be read: {error}"]
        problems = []
        if packet.number <= self._newest:
            problems.append(f"used packet number {packet.number} again")
        self._newest = packet.number
        self.sent[datagram] = packet
        self.sent_at[packet.number] = now
        may_repeat = now == self.path_changed_at or (self.end.finished and self.end.peer_finished)
        for number in packet.fresh:
            if number in back.acknowledged and not may_repeat:
                problems.append(f"acknowledged packet {number} as fresh again")
            back.acknowledged.add(number)
        invented = [number for number in (*packet.fresh, *packet.again) if number not in back.arrived]
        if invented:
            problems.append(f"acknowledged {invented[:5]}, which never arrived")
        for number in packet.data:
            together = packet.data, packet.halved
            if self._together.setdefault(number, together) != together:
                self._together[number] = together
                self.times[number].clear()  # its packet was found to be too long, and is divided and sent at once
            if number >= self.granted:
                problems.append(f"sent DATA {number} where {self.granted} were granted")
            problems += self._check_gaps(number, now)
        return problems

    def _check_gaps(self, number: int, now: float) -> list[str]:
        config, times = self._config, self.times[number]
        times.append(now)
        quiet = [at for at in times if at > self.quiet_since]
        if len(quiet) < 2:
            return []
        gap_s = quiet[-1] - quiet[-2]
        if len(quiet) == 2:
            least_s, most_s = config.timeout_min_s, config.timeout_max_s
        else:
            before_s = quiet[-2] - quiet[-3]
            least_s = most_s = min(before_s * config.backoff_factor, config.timeout_max_s)
        problems = []
        if not least_s - GRAIN_S <= gap_s <= most_s + GRAIN_S:
            problems.append(f"repeated DATA {number} after {gap_s:.3f} s, due in {least_s:.3f} to {most_s:.3f} s")
        if len(quiet) > 1 + config.retries_max:
            problems.append(f"sent DATA {number} {len(quiet)} times into silence")
        return problems

    def arrives(self, packet: Packet, back: ConnectionDirection, now: float) -> None:
        """Record a genuine packet that is about to be delivered to the peer of ``end``."""
        newest = self._newest_arrived
        if packet.number not in self.arrived:
            self.arrived.add(packet.number)
            known = packet.number > newest.number - REPLAY_WINDOW and (newest.epoch - packet.epoch) & 0xFF <= 1
            if packet.eliciting and (known or packet.number > newest.number):
                self.due.append(packet.number)
            if packet.number > newest.number:
                self._newest_arrived = packet
        back.quiet_since = now
        back.granted = max(back.granted, packet.granted)
        for number in (*packet.fresh, *packet.again):
            back.answered_at = max(back.answered_at, back.sent_at.get(number, 0.0))

    def check_acknowledged(self) -> list[str]:
        """Return what should have been acknowledged by now; called after the step that received it."""
        due, self.due = self.due, []
        missing = [number for number in due if number not in self.acknowledged]
        return [f"did not acknowledge {missing[:5]}, which arrived"] if missing else []


class Watch:
    """All connections of a world, and the addresses that belong to nobody; it adds to the world's ``problems``."""

    def __init__(self, config: RudpConfig, problems: list[str]) -> None:
        self.problems = problems
        self.repeats = 0
        self._config = config
        self._directions: dict[tuple[int, int], ConnectionDirection] = {}
        self._owned: set[Address] = set()
        self._came: defaultdict[tuple[str, Address], int] = defaultdict(int)
        self._went: defaultdict[tuple[str, Address], int] = defaultdict(int)

    def owned(self, address: Address) -> None:
        """Note that ``address`` belongs, from now on or again, to one of the parties."""
        self._owned.add(address)

    def opened(self, end: End, secrets: Secrets | None) -> None:
        """Begin to watch what ``end`` sends."""
        self._directions[end.remote_id, end.local_id] = ConnectionDirection(end, self._config, secrets)

    def direction(self, end: End) -> ConnectionDirection:
        """Return the direction from ``end`` to its peer."""
        return self._directions[end.remote_id, end.local_id]

    def leaves(self, name: str, destination: Address, datagram: bytes, now: float) -> None:
        """Examine a datagram that the party ``name`` sends."""
        if destination not in self._owned:
            self._went[name, destination] += len(datagram)
            if self._went[name, destination] > self._came[name, destination]:
                self.problems.append(f"{name}: sends {destination} more than came from there")
        if len(datagram) > self._config.datagram_bytes_max:
            self.problems.append(f"{name}: sent a datagram of {len(datagram)} bytes")
        if datagram[KIND_OFFSET] == RESET:
            return
        ids = ids_of(datagram)
        direction, back = self._directions.get(ids), self._directions.get(ids[::-1])
        if direction is None or back is None:
            self.problems.append(f"{name}: sent a packet of no connection")
            return
        before = len(direction.times)
        self.problems += [f"{name}: {problem}" for problem in direction.leaves(datagram, back, now)]
        packet = direction.sent.get(datagram)
        self.repeats += packet is not None and bool(packet.data) and len(direction.times) == before

    def arrives(self, name: str, source: Address, datagram: bytes, now: float) -> ConnectionDirection | None:
        """Examine a datagram that the party ``name`` is about to receive; return its direction if it is genuine."""
        if source not in self._owned:
            self._came[name, source] += len(datagram)
        ids = ids_of(datagram)
        direction, back = self._directions.get(ids), self._directions.get(ids[::-1])
        packet = direction.sent.get(datagram) if direction is not None else None
        if direction is None or back is None or packet is None or direction.end.peer.party.name != name:
            return None
        direction.arrives(packet, back, now)
        return direction

    def path_changed(self, end: End, now: float) -> None:
        """Restart the repeat formula after a change of path."""
        direction = self.direction(end)
        direction.quiet_since = direction.path_changed_at = now

    def failed(self, end: End, reason: str, now: float) -> list[str]:
        """Return the problems with a failure that ``end`` reports."""
        direction, config = self.direction(end), self._config
        if not reason.startswith("the other side"):
            return [f"failed because {reason}"]
        problems = []
        silence_s = now - direction.answered_at
        if silence_s < patience_min_s(config) - GRAIN_S:
            problems.append(f"failed though a packet of {silence_s:.3f} s ago was acknowledged")
        return problems
