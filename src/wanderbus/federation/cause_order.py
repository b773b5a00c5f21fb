"""Causes that events of foreign domains wait for at a gateway, before they are published here (decision 0175).

What another domain says of the past is believed for a while only: an event waits :data:`CAUSE_WAIT_S` at most. After
that, events of this domain wait for no event of the domain that is late, until it has caught up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wanderbus.channels.causal.domain_past import Cause
from wanderbus.event import EventId

AWAITED_MAX: Final = 256
"""Servers of one late domain whose last awaited event is known; those of further ones are not waited for either."""

ORIGINS_MAX: Final = 4_096
"""Servers of which the last event is known; the one that came first is forgotten first."""

Place = tuple[int, int]


class CauseOrder:
    """Record of what has come to this gateway, and of which domains are late.

    :param own: the own domain
    :param server: this server
    :param servers: all servers of the own domain
    :param domains: the domains that this one has causal order with
    """

    def __init__(self, own: str, server: str, servers: Iterable[str], domains: Iterable[str]) -> None:
        self._own = own
        self.domains: Final = frozenset(domains)
        self._here = f"{own}/{server}"
        self._servers = frozenset([f"{own}/{each}" for each in servers])
        self._reached: dict[str, Place] = {}
        """Place of the last event of each server that has come, or will not come."""
        self._late: dict[tuple[str, str], dict[str, Place]] = {}
        """Events that were not waited for longer, by the domain that named them, their own domain and their server."""
        self._is_changed = False
        self._stated: set[str] = set()
        """Domains with a link that ask for causal order with this one."""

    def reach(self, *identities: EventId) -> None:
        """Note that events have come, each with all before it of its server, ``DOMAIN/SERVER``."""
        for each in identities:
            self._reach(each)

    def _reach(self, identity: EventId) -> None:
        place = identity.incarnation, identity.number
        if place <= self._reached.get(identity.origin, (-1, 0)):
            return
        self._reached.pop(identity.origin, None)
        self._reached[identity.origin] = place
        if len(self._reached) > ORIGINS_MAX:
            del self._reached[next(iter(self._reached))]
        self._is_changed = True
        domain = identity.origin.partition("/")[0]
        for key in [each for each in self._late if each[1] == domain]:
            late = self._late[key]
            if late.get(identity.origin, (-1, 0)) <= place:
                late.pop(identity.origin, None)
            if not late:
                del self._late[key]

    def take_changed(self) -> bool:
        """Return whether more has come since the last call."""
        is_changed, self._is_changed = self._is_changed, False
        return is_changed

    def stated(self, domain: str) -> None:
        """Note that a domain asks for causal order with this one."""
        self._stated.add(domain)

    def unlinked(self, domain: str) -> None:
        """Forget what a domain asks for, which says it again on the next link."""
        self._stated.discard(domain)

    def agreement(self, domain: str) -> str:
        """Return how two domains agree about causal order, as it is listed."""
        if domain in self.domains:
            return "causal" if domain in self._stated else "asked here"
        return "asked there" if domain in self._stated else ""

    def must_wait(self, source: str, causes: Iterable[Cause]) -> bool:
        """Return whether an event of ``source`` with these causes has to wait."""
        return any(self._is_awaited(source, each) for each in causes)

    def give_up(self, source: str, causes: Iterable[Cause]) -> None:
        """Wait no longer: the domains of the missing causes are late for ``source`` until they have caught up."""
        missing = [each for each in causes if self._is_awaited(source, each)]
        for each in missing:
            late = self._late.setdefault((source, each.origin.partition("/")[0]), {})
            self._note(late, each)

    def passes(self, source: str, causes: Iterable[Cause]) -> bool:
        """Return whether an event goes on without a cause, whose domain is late; that has to come, too, to catch up."""
        is_early = False
        for each in causes:
            late = self._late.get((source, each.origin.partition("/")[0]))
            if late is not None and self._is_missing(each):
                self._note(late, each)
                is_early = True
        return is_early

    def _note(self, late: dict[str, Place], cause: Cause) -> None:
        if cause.origin in late or len(late) < AWAITED_MAX:
            late[cause.origin] = max(cause.place, late.get(cause.origin, cause.place))

    def _is_awaited(self, source: str, cause: Cause) -> bool:
        return (source, cause.origin.partition("/")[0]) not in self._late and self._is_missing(cause)

    def _is_missing(self, cause: Cause) -> bool:
        """Return whether an event is to come here, and has not."""
        if self._own not in cause.targets or cause.origin == self._here:
            return False
        domain = cause.origin.partition("/")[0]
        if domain == self._own and cause.origin not in self._servers:
            return False
        return cause.place > self._reached.get(cause.origin, (-1, 0))
