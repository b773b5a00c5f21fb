"""Causes in other domains of what a server publishes: the last events of each server for each domain (decision 0175).

A fold of the log. It forgets what is older than :data:`CAUSE_WAIT_S`, because nobody waits for that any more, and what
a domain has reached: what it publishes comes after everything in its past that was for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from wanderbus.broker.causes.rows import CauseRow, EventFields
from wanderbus.broker.state.rows import SeenRow
from wanderbus.broker.state.tables import RowTable, Stored
from wanderbus.channels.causal.domain_past import (
    CAUSE_WAIT_S,
    Cause,
    DomainPast,
    encode_domain_past,
    origin_of,
    readable_past,
)
from wanderbus.event import EventId

CAUSES_KEPT_MAX: Final = 256
"""Servers, each with each domain, of which the last event is kept; the one that was learnt first is forgotten first."""

ORIGINS_KEPT_MAX: Final = 1_024
"""Servers of other domains of which the last event that came here is kept."""

_KEPT_US: Final = round(CAUSE_WAIT_S * 1e6)


_fields: Final = msgspec.msgpack.Decoder(EventFields)


class DomainPasts:
    """Events that precede what this server publishes, and the last event of each foreign server that came here."""

    def __init__(self) -> None:
        self._causes: RowTable[CauseRow] = RowTable("domain_causes", CauseRow)
        """In the order in which they were learnt."""
        self.reached: RowTable[SeenRow] = RowTable("domain_reached", SeenRow)
        """Last event of each server of another domain, by ``DOMAIN/SERVER``."""
        self.tables: tuple[Stored, ...] = (self._causes, self.reached)

    def begin(self) -> None:
        """Put loaded rows into order."""
        rows = sorted(self._causes.items(), key=lambda each: (each[1].at_us, each[0]))
        self._causes.clear()
        self._causes.update(rows)

    def learn(self, identity: EventId, encoded: bytes, at_us: int) -> None:
        """Take over the past of an event that was published here, or came here, at ``at_us``.

        One that cannot be read counts as none: another server has sent it.
        """
        if b"past" not in encoded:
            return
        fields = _fields.decode(encoded)
        past = readable_past(fields.past) if fields.past else None
        if past is None:
            return
        event = origin_of(fields.origin, identity, past.domain)
        if fields.origin is not None:
            self._reach(event)
        self._forget(at_us)
        for each in past.causes:
            if not each.origin.startswith(f"{past.domain}/"):
                self._drop(each.origin, past.domain, each.place)
        own = Cause(event.origin, event.incarnation, event.number, past.targets)
        for each in (*reversed(past.causes), own):
            for target in sorted(each.targets):
                if target != past.domain or each is own or each.origin.startswith(f"{past.domain}/"):
                    self._put(each, target, at_us)

    def take(self, past: DomainPast, at_us: int) -> None:
        """Take over the causes of another server, whose session comes here."""
        self._forget(at_us)
        for each in reversed(past.causes):
            for target in sorted(each.targets):
                self._put(each, target, at_us)

    def causes(self, own: str, domains: Collection[str], now_us: int) -> tuple[Cause, ...]:
        """Return the causes of what is published now, the newest first, as far as they concern these ``domains``.

        The ``own`` domain waits for its own events alone: it has waited for the others before they came here.
        """
        found: dict[tuple[str, int, int], set[str]] = {}
        for origin, target, row in self._present(now_us):
            if target in domains if target != own else origin.startswith(f"{own}/"):
                found.setdefault((origin, row.incarnation, row.number), set()).add(target)
        return tuple([Cause(*place, frozenset(targets)) for place, targets in found.items()])

    def encoded(self, now_us: int) -> bytes:
        """Return all causes, for the server to which a session goes; empty if there are none."""
        several = list(self._present(now_us))
        causes = [Cause(origin, row.incarnation, row.number, frozenset({target})) for origin, target, row in several]
        domains = dict.fromkeys(name for origin, target, _ in several for name in (origin.partition("/")[0], target))
        names = tuple(domains)
        return encode_domain_past(DomainPast(names[0], frozenset(), tuple(causes)), names) if names else b""

    def _present(self, now_us: int) -> Iterator[tuple[str, str, CauseRow]]:
        """Yield the server, the domain and the row of each cause that is not too old, the newest first."""
        for key, row in reversed(self._causes.items()):
            if row.at_us < now_us - _KEPT_US:
                break
            origin, _, target = key.partition(">")
            yield origin, target, row

    def _put(self, cause: Cause, target: str, at_us: int) -> None:
        key = f"{cause.origin}>{target}"
        if (known := self._causes.get(key)) is not None and (known.incarnation, known.number) >= cause.place:
            return
        self._causes.drop(key)  # so that the last one is at the end
        self._causes.put(key, CauseRow(*cause.place, at_us))
        if len(self._causes) > CAUSES_KEPT_MAX:
            self._causes.drop(next(iter(self._causes)))

    def _drop(self, origin: str, target: str, place: tuple[int, int]) -> None:
        known = self._causes.get(key := f"{origin}>{target}")
        if known is not None and (known.incarnation, known.number) <= place:
            self._causes.drop(key)

    def _forget(self, now_us: int) -> None:
        while self._causes and self._causes[key := next(iter(self._causes))].at_us < now_us - _KEPT_US:
            self._causes.drop(key)

    def _reach(self, event: EventId) -> None:
        known = self.reached.get(event.origin)
        if known is None or known.id < event:
            self.reached.drop(event.origin)
            self.reached.put(event.origin, SeenRow(event))
            if len(self.reached) > ORIGINS_KEPT_MAX:
                self.reached.drop(next(iter(self.reached)))
