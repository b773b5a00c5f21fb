"""Rendezvous: hashing names the domain that takes the interest in a type and tells the senders of it (SPEC M-03).

Each domain has one stream to each rendezvous. Events go directly. What is known stays if a rendezvous is away: changes
of the interest in its types wait until it is back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping

from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import FromReceiver, FromSender, Message, Stream
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX, check_filters
from wanderbus.federation.methods.filter_method import FilterMethod, Outputs, carried_outputs
from wanderbus.federation.methods.rendezvous_choice import RendezvousChoice
from wanderbus.federation.methods.rendezvous_point import GROUP, RendezvousPoint
from wanderbus.federation.methods.wanted_interests import WantedInterests
from wanderbus.federation.methods.wire import Role, TrustAnnounced, TrustedType, encode
from wanderbus.federation.routing_messages import RoutingSettings, SendToDomain
from wanderbus.machine import Output


class RendezvousMethod(FilterMethod):
    """Streams to the rendezvous of the types, tables of what they tell, and the own rendezvous."""

    def __init__(self, settings: RoutingSettings, wanted: WantedInterests, *, epoch: int, mode: InterestMode) -> None:
        super().__init__(settings, wanted, epoch=epoch, mode=mode)
        neighbours = settings.neighbours
        backbone = [name for name, each in neighbours.items() if each.is_backbone]
        self._choice = RendezvousChoice([*backbone, *[self._own] * settings.is_backbone])
        self._shared = settings.shared()
        self._types_at: dict[str, list[str]] = {}
        """Types by their rendezvous, if that may know of them."""
        for type in sorted(self._shared):
            if (rendezvous := self.rendezvous_of(type)) is not None:
                self._types_at.setdefault(rendezvous, []).append(type)
        self._sources = {name: InterestSource(Stream(GROUP, self._own), epoch, mode) for name in self._types_at}
        for name, source in self._sources.items():
            source.outgoing.expect(name)
        self._tables = IncomingStreams()
        self._point = self._make_point(epoch, mode)
        self._loop: deque[tuple[Role, Message]] = deque()
        """Messages of this domain to itself."""

    def start(self, now: float) -> Outputs:
        if self._own not in self._types_at:
            return []
        outputs = self._from_point(self._point.begin(self._own, now))
        outputs += self._from_here(self._sources[self._own].outgoing.link_up(self._own, now))
        return outputs + self._run_loop(now)

    def rendezvous_of(self, type: str) -> str | None:
        """Return the rendezvous of a type; None if there is none, or this domain does not trust it with the type."""
        name = self._choice.of(type)
        if name is None or name == self._own:
            return name
        return name if type in self._neighbour(name).shared else None

    def link_up(self, domain: str, now: float) -> Outputs:
        if not self._neighbour(domain).shared:
            return []
        # A domain that takes itself for a rendezvous does not wait for one that says that it has no types there.
        outputs: Outputs = [SendToDomain(domain, encode(self._trust_for(domain)))]
        if domain not in self._types_at:
            return outputs
        return outputs + self._from_here(self._sources[domain].outgoing.link_up(domain, now))

    def link_down(self, domain: str, now: float) -> Outputs:
        if domain in self._sources:
            self._sources[domain].outgoing.link_down(domain, is_dead=False)
        return self._from_point(self._point.link_down(domain)) + self._run_loop(now)

    def update(self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float) -> Outputs:
        several = list(removed)
        outputs: Outputs = []
        for name, source in self._sources.items():
            new = {id: wanted for id, wanted in added.items() if self.rendezvous_of(str(wanted[0])) == name}
            gone = [id for id in several if id in source.interests]
            if new or gone:
                outputs += self._from_here(source.update(new, gone, now)[1])
        return outputs + self._run_loop(now)

    def trust_announced(self, domain: str, told: TrustAnnounced, now: float) -> Outputs:
        """Take whom a domain trusts with the types whose rendezvous this domain is."""
        return self._from_point(self._point.trust_announced(domain, told, now)) + self._run_loop(now)

    def receive(self, domain: str, role: Role, message: Message, now: float) -> Outputs:
        return self._received(domain, role, message, now) + self._run_loop(now)

    def repeat(self, now: float) -> Outputs:
        outputs = [each for source in self._sources.values() for each in self._from_here(source.repeat(now))]
        return outputs + self._from_point(self._point.repeat(now)) + self._run_loop(now)

    def repeat_at(self) -> float | None:
        times = [self._point.repeat_at(), *(source.repeat_at() for source in self._sources.values())]
        return min((each for each in times if each is not None), default=None)

    def mark(self, type: str) -> Hashable:
        return self._source_of(type).outgoing.version

    def is_effective(self, type: str, mark: Hashable) -> bool:
        assert isinstance(mark, int), mark
        return self._source_of(type).outgoing.effective >= mark

    @property
    def is_settled(self) -> bool:
        return all(each.interests.is_settled for each in self._sources.values())

    def counts(self, type: str, mark: Hashable, linked: Collection[str]) -> bool:
        return self.rendezvous_of(type) not in {*linked, self._own} or self.is_effective(type, mark)

    def is_known(self, domain: str, type: str) -> bool:
        rendezvous = self.rendezvous_of(type)
        return rendezvous is not None and self._tables.is_current((rendezvous, Stream(GROUP, domain)))

    def filters_held(self) -> int:
        told = sum(len(self._tables.filters(route)) for route in self._tables.routes())
        return told + self._point.filters_held()

    def _source_of(self, type: str) -> InterestSource:
        rendezvous = self.rendezvous_of(type)
        assert rendezvous is not None, "a type without a rendezvous has another method"
        return self._sources[rendezvous]

    # Messages -----------------------------------------------------------------------------------------------------

    def _received(self, domain: str, role: Role, message: Message, now: float) -> Outputs:
        if role == "asked" and isinstance(message, FromReceiver):
            source = self._sources.get(domain)
            return [] if source is None else self._from_here(source.outgoing.receive(domain, message, now))
        if role == "spread" and isinstance(message, FromSender):
            return self._told(domain, message, now)
        return self._from_point(self._point.receive(domain, message, now))

    def _told(self, rendezvous: str, message: FromSender, now: float) -> Outputs:
        """Take what the rendezvous says that another domain wants."""
        origin = message.stream.origin
        if message.stream != Stream(GROUP, origin) or origin == self._own:
            raise RemoteProtocolError(f"a rendezvous has no stream of {origin}", None)
        route = rendezvous, message.stream
        if not self._tables.knows(route) and self._streams_of(rendezvous) >= DOMAINS_MAX:
            raise RemoteProtocolError(f"streams of more than {DOMAINS_MAX} domains", None)
        neighbour = self._settings.neighbours.get(origin)
        sends = frozenset() if neighbour is None else neighbour.sends
        check_filters(self._tables, route, message, sends)
        result = self._tables.receive(rendezvous, message, now)

        def may(type: str) -> bool:
            return type in sends and self.rendezvous_of(type) == rendezvous

        if neighbour is not None:
            self._wanted.apply("rendezvous", origin, self._tables, route, message, result, may)
        return self._from_here([SendToServer(rendezvous, result.answer)] if result.answer is not None else [])

    def _streams_of(self, rendezvous: str) -> int:
        return sum(sender == rendezvous for sender, _ in self._tables.routes())

    def _from_here(self, outputs: Iterable[Output]) -> Outputs:
        """Return what this domain asks of a rendezvous, and its answers to one."""
        return self._routed(outputs, "asked", "spread")

    def _from_point(self, outputs: Iterable[Output]) -> Outputs:
        """Return what the own rendezvous tells others, and its answers to them."""
        return self._routed(outputs, "spread", "asked")

    def _routed(self, outputs: Iterable[Output], of_sender: Role, of_receiver: Role) -> Outputs:
        found: Outputs = []
        for each in outputs:
            role = of_sender
            if isinstance(each, SendToServer):
                role = of_sender if isinstance(each.message, FromSender) else of_receiver
                if each.server == self._own:
                    self._loop.append((role, each.message))
                    continue
            found += carried_outputs(role, [each])
        return found

    def _run_loop(self, now: float) -> Outputs:
        """Take the messages of this domain to itself."""
        outputs: Outputs = []
        while self._loop:
            role, message = self._loop.popleft()
            outputs += self._received(self._own, role, message, now)
        return outputs

    # The own rendezvous -------------------------------------------------------------------------------------------

    def _make_point(self, epoch: int, mode: InterestMode) -> RendezvousPoint:
        own = frozenset(self._types_at.get(self._own, ()))
        types = {name: each.shared & own for name, each in self._settings.neighbours.items()}
        trust = {type: self._trust_in(type) for type in own}
        return RendezvousPoint(self._own, {**types, self._own: own}, trust, epoch=epoch, mode=mode)

    def _trust_for(self, rendezvous: str) -> TrustAnnounced:
        domains = tuple(self._settings.neighbours)
        types = self._types_at.get(rendezvous, ())
        return TrustAnnounced(domains, tuple([TrustedType.of(each, domains, *self._trust_in(each)) for each in types]))

    def _trust_in(self, type: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the domains that a type is received from, and sent to."""
        neighbours = self._settings.neighbours.items()
        receives = frozenset(name for name, each in neighbours if type in each.receives)
        return receives, frozenset(name for name, each in neighbours if type in each.sends)
