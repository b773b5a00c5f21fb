"""Multicast: each domain tells every other one directly what it wants of the types that it receives (SPEC M-02)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import FromReceiver, InterestConfirmed, Message, Stream
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.methods.filter_bounds import check_filters
from wanderbus.federation.methods.filter_method import FilterMethod, Outputs, carried_outputs
from wanderbus.federation.methods.wanted_interests import WantedInterests
from wanderbus.federation.methods.wire import Role
from wanderbus.federation.routing_messages import RoutingSettings

_GROUP: Final = 0
"""Interest between domains has no channel groups."""


class MulticastMethod(FilterMethod):
    """One stream to all domains, of which each gets the types that are received from it."""

    def __init__(self, settings: RoutingSettings, wanted: WantedInterests, *, epoch: int, mode: InterestMode) -> None:
        super().__init__(settings, wanted, epoch=epoch, mode=mode)
        self._source = InterestSource(Stream(_GROUP, self._own), epoch, mode, selects=self._selects)
        self._tables = IncomingStreams()
        self._current: set[str] = set()
        """Domains whose position on the last link is that of the table: a later life may say more, or less."""
        for name, neighbour in settings.neighbours.items():
            if neighbour.shared:
                self._source.outgoing.expect(name)

    def link_up(self, domain: str, now: float) -> Outputs:
        self._current.discard(domain)
        if not self._neighbour(domain).shared:
            return []
        return carried_outputs("multicast", self._source.outgoing.link_up(domain, now))

    def link_down(self, domain: str, now: float) -> Outputs:
        self._source.outgoing.link_down(domain, is_dead=False)
        return []

    def update(self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float) -> Outputs:
        return carried_outputs("multicast", self._source.update(added, removed, now)[1])

    def receive(self, domain: str, role: Role, message: Message, now: float) -> Outputs:
        if isinstance(message, FromReceiver):
            return carried_outputs("multicast", self._source.outgoing.receive(domain, message, now))
        stream, sends = message.stream, self._neighbour(domain).sends
        if stream != Stream(_GROUP, domain):
            raise RemoteProtocolError(f"a stream of {stream.origin} is not that of the sender", None)
        route = domain, stream
        check_filters(self._tables, route, message, sends)
        result = self._tables.receive(domain, message, now)
        if isinstance(result.answer, InterestConfirmed):
            self._current.add(domain)
        self._wanted.apply("multicast", domain, self._tables, route, message, result, sends.__contains__)
        return carried_outputs("multicast", [SendToServer(domain, result.answer)] if result.answer else [])

    def repeat(self, now: float) -> Outputs:
        return carried_outputs("multicast", self._source.repeat(now))

    def repeat_at(self) -> float | None:
        return self._source.repeat_at()

    def mark(self, type: str) -> Hashable:
        return self._source.outgoing.version

    def is_effective(self, type: str, mark: Hashable) -> bool:
        assert isinstance(mark, int), mark
        return self._source.outgoing.effective >= mark

    @property
    def is_settled(self) -> bool:
        return self._source.interests.is_settled

    def counts(self, type: str, mark: Hashable, linked: Collection[str]) -> bool:
        assert isinstance(mark, int), mark
        return all(self._source.outgoing.effective_at(each) >= mark for each in linked)

    def is_known(self, domain: str, type: str) -> bool:
        return domain in self._current

    def filters_held(self) -> int:
        return sum(len(self._tables.filters(route)) for route in self._tables.routes())

    def _selects(self, domain: str, interest: Interest) -> bool:
        return interest.subject in self._neighbour(domain).receives
