"""Causal order with other domains: what a server says of the past of its events (decision 0175).

An event of a decentralised channel gets its causes in other domains as a field, before it is written. Each event that
is put into the queue of another domain is also sent to the gateway of this one. So the gateway delivers it in causal
order, and what the gateway publishes afterwards for other domains follows it everywhere here.
"""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus.broker.basics import Basics
from wanderbus.broker.causes.marked_event import MarkedEvent
from wanderbus.broker.servers.foreign_messages import CausesReached, OrderedDomains
from wanderbus.broker.servers.server_users import domain_user
from wanderbus.channels.causal.domain_past import DomainPast
from wanderbus.event import Event, EventId
from wanderbus.records import Notified


class DomainOrder:
    """Domains that ask for causal order with this one, and the gateway here."""

    def __init__(self, basics: Basics) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._own = basics.config.domain
        self._domains: tuple[str, ...] = ()
        self._by_user: dict[str, str] = {}
        self._gateway = ""

    def use(self, given: OrderedDomains) -> None:
        """Use these domains from now on; report to the gateway here what has come before."""
        self._gateway = given.gateway
        self._by_user = {domain_user(each, self._own): each for each in given.domains}
        self._domains = (self._own, *given.domains) if given.domains else ()
        if self._is_gateway:
            decentralised = self._state.decentralised
            own = [EventId(f"{self._own}/{row.id.origin}", *_place(row.id)) for row in decentralised.seen.values()]
            reached = [row.id for row in decentralised.domain_pasts.reached.values()]
            self._journal.emit(CausesReached((*own, *reached)))

    @property
    def _is_gateway(self) -> bool:
        return bool(self._domains) and self._gateway == self._state.server

    def marked(self, event: Event, *, is_foreign: bool) -> MarkedEvent | None:
        """Return an event of this domain with its causes, None if nobody asks for them."""
        if not self._domains or is_foreign:
            return None
        known = self._state.decentralised.domain_pasts
        past = DomainPast(self._own, frozenset(), known.causes(self._own, self._domains, self._state.wall_us))
        return MarkedEvent(event, past, self._domains)

    def targets(self, event: Event, notified: Iterable[Notified]) -> frozenset[str]:
        """Return the domains whose queues have an event; the own one waits for it, too, if another one has it.

        A domain gets what matches its filters of this very subject.
        """
        rows = self._state.subscriptions
        found = {
            self._by_user[each.user]
            for each in notified
            if each.user in self._by_user
            and any(rows[one].subscription.subject == event.subject for one in each.subscriptions)
        }
        return frozenset(found | {self._own} if found else found)

    def gateway(self, targets: frozenset[str]) -> str | None:
        """Return the gateway, if it has to deliver an event with these targets and another server accepts it."""
        return self._gateway if targets and not self._is_gateway else None

    def delivered(self, identity: EventId) -> None:
        """Report to the gateway here that it has an event of another server of this domain."""
        if self._is_gateway:
            self._journal.emit_now(CausesReached((EventId(f"{self._own}/{identity.origin}", *_place(identity)),)))


def _place(identity: EventId) -> tuple[int, int]:
    return identity.incarnation, identity.number
