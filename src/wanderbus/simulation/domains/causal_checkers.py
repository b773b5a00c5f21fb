"""Truth about causal order, by full vector clocks that are computed from the durable logs of all servers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from wanderbus.channels.causal.header import Dot, Header, HeaderEntry, Origin
from wanderbus.channels.causal.interface import CausalDelivered, CausalSent, EntriesLearnt, Passed, ServerRemoved
from wanderbus.simulation.domains.causal_node import Written

Clock = dict[Origin, int]


class CausalTruth:
    """Goes through the records of all servers in the order of their writing, and collects ``problems``.

    ``exports`` are the moments at which a session left a server: place in the history, token, origin.
    """

    def __init__(self, history: Iterable[Written], exports: Sequence[tuple[int, int, Origin]]) -> None:
        self.problems: list[str] = []
        self.violations = 0
        self.repeated = 0
        self.out_of_order = 0
        self.delivered: dict[int, set[Dot]] = {}
        """Events by the server where they were delivered, in any incarnation."""
        self.published: dict[Dot, Header] = {}
        self.payloads: dict[Dot, bytes] = {}
        self._clocks: dict[Dot, Clock] = {}
        self._servers: dict[int, Clock] = {}
        self._claims: dict[int, Clock] = {}
        self._claimed: dict[Dot, Clock] = {}
        """Past that each event claims: more than its clock, if a server was told more than it needed."""
        self._lives: dict[int, int] = {}
        self._passed: dict[tuple[int, Origin], int] = {}
        self._last: dict[tuple[int, int, Origin], int] = {}
        self._sent_to: dict[int, dict[Origin, list[int]]] = {}
        """Numbers of the events that were sent to each server, in ascending order."""
        self._complete: dict[tuple[int, Origin], int] = {}
        """Number of them, from the first on, that are delivered or passed over."""
        self._excused: dict[int, Clock] = {}
        """Past of the events that each server passed over. Only those could name it as a cause."""
        self._forgotten: set[tuple[int, int]] = set()
        self._pasts: dict[int, Clock] = {}
        moments: list[tuple[int, Written | tuple[int, Origin]]] = [(each.sequence, each) for each in history]
        moments += [(sequence, (token, origin)) for sequence, token, origin in exports]
        for _, moment in sorted(moments, key=lambda each: each[0]):
            if isinstance(moment, Written):
                self._follow(moment)
            else:
                token, (server, incarnation) = moment
                is_same_life = self._lives.get(server) == incarnation
                self._pasts[token] = dict(self._servers[server]) if is_same_life else {}

    def published_origins(self) -> set[Origin]:
        """Return every origin that published an event."""
        return {origin for origin, _ in self.published}

    def lost(self, is_excused: Mapping[int, set[Origin]]) -> list[Dot]:
        """Return the events that a destination never delivered; by server, the origins that may have lost some."""
        return [
            (origin, number)
            for server, origins in self._sent_to.items()
            for origin, numbers in origins.items()
            for number in numbers
            if (origin, number) not in self.delivered.get(server, set()) and origin not in is_excused.get(server, set())
        ]

    def _follow(self, written: Written) -> None:
        server, record = written.server, written.record
        if self._lives.get(server) != written.incarnation:
            self._lives[server], self._servers[server], self._claims[server] = written.incarnation, {}, {}
        clock, claims = self._servers[server], self._claims[server]
        match record:
            case CausalSent(header=header, payload=payload):
                clock[header.origin] = header.number
                self.published[header.dot], self.payloads[header.dot] = header, payload
                claims[header.origin] = header.number
                self._clocks[header.dot], self._claimed[header.dot] = dict(clock), dict(claims)
                for each, _ in header.befores:
                    self._sent_to.setdefault(each, {}).setdefault(header.origin, []).append(header.number)
            case CausalDelivered(header=header, payload=payload):
                self._on_accepted(written, header, payload)
                _merge(clock, self._clocks.get(header.dot, {}))
                self._claim(claims, (HeaderEntry(header.origin, header.number, 0), *header.entries))
            case Passed(origin=origin, number=number):
                self._excuse(server, origin, number)
                self._passed[server, origin] = number
            case ServerRemoved(server=removed, is_forgotten=True):
                for origin in [each for each in self._sent_to.get(server, {}) if each[0] == removed]:
                    self._excuse(server, origin, self._sent_to[server][origin][-1])
                self._forgotten.add((server, removed))
            case EntriesLearnt(entries=entries, token=token):
                self._claim(claims, entries)
                if token:
                    self._check_past(server, self._pasts[token], f"session {token}")
                    _merge(clock, self._pasts[token])

    def _claim(self, claims: Clock, entries: Iterable[HeaderEntry]) -> None:
        for entry in entries:
            _merge(claims, {entry.origin: entry.number})
            _merge(claims, self._claimed.get((entry.origin, entry.number), {}))

    def _on_accepted(self, written: Written, header: Header, payload: bytes) -> None:
        server, dot = written.server, header.dot
        sent = self.published.get(dot)
        if sent is None or payload != self.payloads[dot] or not sent.servers >> server & 1:
            self.problems.append(f"server {server} delivered {dot}, which was not sent to it")
            return
        life = (server, written.incarnation, header.origin)
        if self._last.get(life, 0) == header.number:
            self.repeated += 1
            self.problems.append(f"server {server} delivered {dot} twice")
        elif self._last.get(life, 0) > header.number:
            self.out_of_order += 1
            self.problems.append(f"server {server} delivered {dot} after {self._last[life]}")
        self._last[life] = header.number
        clock = self._clocks[dot]
        self.delivered.setdefault(server, set()).add(dot)
        self._check_past(server, clock, str(dot))

    def _excuse(self, server: int, origin: Origin, until: int) -> None:
        """Note that ``server`` passes over the events of ``origin`` that it has not delivered."""
        for number in self._sent_to.get(server, {}).get(origin, []):
            if number <= until and (origin, number) not in self.delivered.get(server, set()):
                _merge(self._excused.setdefault(server, {}), self._claimed[origin, number])

    def _check_past(self, server: int, clock: Clock, what: str) -> None:
        """Check that ``server`` has delivered all that was sent to it and is within ``clock``."""
        done, excused = self.delivered.get(server, set()), self._excused.get(server, {})
        for origin, numbers in self._sent_to.get(server, {}).items():
            passed = self._passed.get((server, origin), 0)
            first = self._complete.get((server, origin), 0)
            while first < len(numbers) and ((origin, numbers[first]) in done or numbers[first] <= passed):
                first += 1
            self._complete[server, origin] = first
            for number in numbers[first : bisect_right(numbers, clock.get(origin, 0))]:
                if (server, origin[0]) in self._forgotten or number <= excused.get(origin, 0):
                    continue
                if (origin, number) not in done and number > passed:
                    self.violations += 1
                    self.problems.append(f"server {server} delivered {what} before its cause {(origin, number)}")


def _merge(clock: Clock, other: Clock) -> None:
    for origin, number in other.items():
        clock[origin] = max(number, clock.get(origin, 0))
