"""Gateway: the events, filters and acknowledgements between this domain and all others (SPEC M; decision 0161).

::

    servers here ──interest──▶ DomesticTable ──▶ FilterRouting ──FiltersSent──▶ foreign domains
                 ◀──circuits── Exports       ◀── FilterRouting ◀──FiltersSent──
                 ──circuits──▶ Exports ──EventForwarded──▶                       foreign domains
    broker here  ◀──PublishFor── Imports     ◀──EventForwarded──
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from wanderbus.broker.messages import DomesticInterestChanged, LinkClosed, LinkDropped, LinkOpened, SendOnLink
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.messages import FromReceiver, FromSender
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import EventId
from wanderbus.federation.cause_order import CauseOrder
from wanderbus.federation.circuit_messages import (
    CircuitClosed,
    CircuitMessage,
    ServersAsked,
    ToFar,
)
from wanderbus.federation.circuits import domain_of_circuit
from wanderbus.federation.domestic_interest import DomesticTable, ReceivedTypes
from wanderbus.federation.everywhere import EverywhereAnswers
from wanderbus.federation.everywhere_messages import InterestCounts
from wanderbus.federation.export_messages import ExportOutput, ToDomain, ToServer
from wanderbus.federation.exports import exports_of
from wanderbus.federation.far.passing import FarPassing
from wanderbus.federation.gateway_choice import SWITCH_S, Choice, GatewayChoice, domain_of_link, link_name
from wanderbus.federation.imported import Imported
from wanderbus.federation.imports import imports_of
from wanderbus.federation.messages import (
    FederationOutput,
    ForeignEventsLost,
    ForeignLinkReport,
    ForForeignLinks,
)
from wanderbus.federation.named_servers import shown
from wanderbus.federation.own_gateways import OwnGateways
from wanderbus.federation.parameters import ForeignDomain
from wanderbus.federation.reports.foreign_troubles import LINK_HINT, ForeignTroubles
from wanderbus.federation.routing_lives import RoutingLives
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    DomainUnlinked,
    OwnInterestChanged,
    RoutingFailed,
    RoutingInput,
    RoutingSettings,
    RoutingSuperseded,
    SendToDomain,
    WantedByDomain,
    WantedKnown,
)
from wanderbus.federation.shared_outputs import ByOpener
from wanderbus.federation.wire import (
    EventForwarded,
    EventPassed,
    EventsLost,
    EventsTaken,
    FarForwarded,
    FiltersAnswered,
    FiltersBegun,
    FiltersSent,
    Message,
    OrderStated,
    ServersNamed,
    ServersWanted,
    decode,
    encode,
)
from wanderbus.machine import CancelTimer, SetTimer, TimerFired
from wanderbus.peers.messages import (
    CloseServerLink,
    ConsumedOnServerLink,
    KnowServers,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
    ServerReachable,
)

GatewayOutput = FederationOutput | ToServer | InterestCounts | ByOpener
"""Outputs: those of the whole, messages for circuits, answers to servers, and requests to other gateways."""

REPLACED: Final = "another link replaces it"
"""Reason for which a link to a foreign domain is closed when the other side has opened a newer one."""

ABSENT: Final = "is not in the federation file"
"""End of the reason for which a link is closed that another gateway lends, whose file has the domain."""

NO_PATH: Final = "this gateway can have no link of its own there, and no tree has a path yet"
"""Reason why there is no link to a domain without gateways that could be reached."""

TURN_S: Final = 0.01
"""Pause between two turns of a change that takes several: others are served meanwhile."""


class Gateway:
    """All that one gateway does for its domain; every call returns outputs in order.

    :param own: the own domain
    :param name: this server
    :param gateways: the gateways of the own domain, in the order in which they take turns
    :param servers: all servers of the own domain
    :param routing: how filters get around between the domains
    :param new_link: returns the number of a link of the broker that is not used yet
    :param epoch: identifies this life of the gateway; it rises with each
    :param generation: number of gateways that were here before, in one life of the server, and used the same links
    :param access: servers of the own domain that serve devices; all unless given
    """

    def __init__(
        self,
        own: str,
        name: str,
        gateways: Sequence[str],
        servers: Sequence[str],
        domains: Iterable[ForeignDomain],
        types: ReceivedTypes,
        routing: RoutingSettings,
        new_link: Callable[[], int],
        epoch: int,
        generation: int = 0,
        access: Sequence[str] = (),
    ) -> None:
        self._own = own
        self._name = name
        self._gateways = OwnGateways(gateways, name)
        self._is_first = gateways[0] == name
        self._had: set[str] = set()
        """Foreign domains with a link here since the routing has begun."""
        self._reachable: set[str] = {name}
        """Servers of the own domain that can be reached."""
        self._table = DomesticTable([each for each in servers if each != name], types)
        self._domains = {each.name: each for each in domains}
        self._lives = RoutingLives(routing, epoch, gateways.index(name), self._domains)
        self._choices = {
            each.name: GatewayChoice(
                each.name, [link_name(each.name, one) for one in each.gateways], self._gateways.behind
            )
            for each in self._domains.values()
            if own < each.name
        }
        self._names = tuple(self._domains)
        self._far = FarPassing(servers, access or servers, self._domains)
        self._order = CauseOrder(own, name, servers, [each.name for each in self._domains.values() if each.is_causal])
        self._exports = exports_of(self._domains.values(), servers, generation, epoch)
        self._imports = imports_of(self._domains.values(), own, new_link, epoch, self._order)
        self._publishing: dict[int, str] = {}
        """The foreign domain whose events each link of the broker publishes."""
        self._known: dict[str, frozenset[str]] = {}
        """Types of which all filters of a foreign domain are known; they stay known while there is no link."""
        self._doubtful: dict[str, set[Interest]] = {each: set() for each in self._domains}
        """Filters of each foreign domain that an earlier life of the routing knew, and this one does not yet."""
        self._early: dict[str, list[DomainMessage]] = {}
        """Messages of foreign domains about filters that came before the interest here was known."""
        self._unanswered: Counter[str] = Counter()
        """Lives of the routing that began on the link to each foreign domain, and that it has not answered."""
        self._links: dict[str, int] = {}
        """The link to each foreign domain."""
        self._troubles = ForeignTroubles()
        self._is_placing = False
        self._taken: dict[str, dict[str, EventsTaken]] = {}
        """Last place of each server of a foreign domain; at the end of a batch it is acknowledged, with all before."""
        self._read: Counter[int] = Counter()
        """Messages of each link that are finished since the last batch."""
        self._everywhere = EverywhereAnswers()
        self._wall_us = 0
        self._outputs: list[GatewayOutput] = []

    # Own domain -------------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[GatewayOutput]:
        """Begin: this server can reach itself, and opens links if no other gateway comes before it."""
        for each in self._exports.values():
            self._apply(each.domain, each.up(self._name, now))
        if not self._is_first:
            self._outputs.append(SetTimer(("turn",), now + SWITCH_S))
        else:
            self._take_turn(now)
        return self._take()

    def end(self, reason: str) -> list[LinkClosed]:
        """Return what closes the links of the broker, because another gateway takes the place of this one."""
        return [LinkClosed(each, reason) for each in self._publishing]

    def clock_read(self, wall_us: int) -> None:
        """Note the wall clock."""
        self._wall_us = wall_us
        self._lives.clock_read(wall_us)

    def server_up(self, server: str, now: float) -> list[GatewayOutput]:
        """Use a server of the own domain that can be reached now."""
        self._gateways.up(server)
        self._reachable.add(server)
        for each in self._exports.values():
            self._apply(each.domain, each.up(server, now))
        self._take_turn(now)
        return self._take()

    def server_down(self, server: str, now: float) -> list[GatewayOutput]:
        """Wait for a server of the own domain that cannot be reached."""
        self._reachable.discard(server)
        for each in self._exports.values():
            self._apply(each.domain, each.down(server, now))
        if self._gateways.down(server):
            self._outputs.append(SetTimer(("turn",), now + SWITCH_S))
        return self._take()

    def interest_changed(self, changed: DomesticInterestChanged, now: float) -> list[GatewayOutput]:
        """Take what users of this server want."""
        self._wanted_here(self._table.changed(changed), now)
        return self._take()

    def interest_received(
        self, server: str, message: FromSender, now: float
    ) -> tuple[FromReceiver | None, list[GatewayOutput]]:
        """Take what users of another server want; return the answer to it.

        Raises :class:`RemoteProtocolError` for an invalid message.
        """
        was_awaited = bool(self._table.awaited)
        answer, change = self._table.receive(server, message, now)
        self._wanted_here(change, now)
        if was_awaited and not self._table.awaited:
            for domain, link in self._links.items():
                early = self._early.pop(domain, [])
                self._route([DomainLinked(domain), *early], now)
                self._consumed(link, len(early))
        return answer, self._take()

    def from_server(
        self, server: str, messages: Iterable[CircuitMessage | CircuitClosed], now: float
    ) -> list[GatewayOutput]:
        """Take messages of circuits, whose numbers tell which foreign domains they are for."""
        for circuit, several in groupby(messages, attrgetter("circuit")):
            if self._names:
                domain = self._names[domain_of_circuit(circuit, len(self._names))]
                self._apply(domain, self._exports[domain].from_server(server, list(several), now))
        return self._take()

    def from_far(self, server: str, message: ToFar | ServersAsked) -> list[GatewayOutput]:
        """Pass on a message of a server here to another domain, if this gateway has the link there."""
        if isinstance(message, ToFar):
            self._to_domain(message.domain, FarForwarded(server, message.server, message.payload))
        else:
            self._to_domain(message.domain, ServersWanted(server, message.user))
        return self._take()

    def from_broker(self, output: SendOnLink | LinkDropped, now: float) -> list[GatewayOutput]:
        """Take an answer of the broker to what was published."""
        domain = self._publishing.get(output.link)
        if domain is not None and isinstance(output, SendOnLink):
            self._imported(domain, self._imports[domain].answered(output.payload, now))
        elif domain is not None:
            del self._publishing[output.link]
            self._imported(domain, self._imports[domain].dropped(now))
        return self._take_examined(now)

    def causes_reached(self, ids: Iterable[EventId], now: float) -> list[GatewayOutput]:
        """Note events that have come to this server, which others may wait for."""
        self._order.reach(*ids)
        return self._take_examined(now)

    def finish(self) -> list[GatewayOutput]:
        """End a batch: acknowledge to foreign domains what is durable here, and let them send as much again."""
        for domain, taken in self._taken.items():
            if (link := self._links.get(domain)) is not None:
                self._outputs += [ForForeignLinks(SendOnServerLink(link, encode(each))) for each in taken.values()]
        self._taken.clear()
        self._outputs += [ForForeignLinks(ConsumedOnServerLink(link, count)) for link, count in self._read.items()]
        self._read.clear()
        if not self._table.awaited and self._table.is_settled:
            routing = self._lives.present
            self._outputs += self._everywhere.to_answer(routing.marks, routing.counts)
        return self._take()

    def everywhere_asked(self, link: int, number: int) -> None:
        """Answer, with the end of a batch, once the present interest counts in the domains that are linked here."""
        self._everywhere.asked(link, number)

    def _take_turn(self, now: float) -> None:
        """Open or leave the links that this domain opens, as it is this gateway's turn or not."""
        for each in self._choices.values():
            self._choose(each.start(now) if self._gateways.is_in_turn else each.stop())

    def _wanted_here(self, change: InterestChange, now: float) -> None:
        if change:
            self._route([OwnInterestChanged(change)], now)
        if not self._table.is_settled and not self._is_placing:
            self._is_placing = True
            self._outputs.append(SetTimer(("placing",), now + TURN_S))

    # Foreign domains ---------------------------------------------------------------------------------------------

    def at_foreign_links(self, report: ForeignLinkReport, now: float) -> list[GatewayOutput]:
        """Take a report of the links to foreign domains."""
        domain = domain_of_link(report.server)
        match report:
            case ServerLinkOpened(link=link) if domain not in self._domains:
                # Another gateway here, whose file is another one, lends it.
                self._outputs.append(ForForeignLinks(CloseServerLink(link, f"{domain} {ABSENT}")))
            case ServerLinkOpened(link=link, server=server, is_ours=is_ours):
                if is_ours is not (domain in self._choices):
                    reason = f"{min(self._own, domain)} opens the links between both domains"
                    self._outputs.append(ForForeignLinks(CloseServerLink(link, reason)))
                else:
                    if (former := self._links.get(domain)) is not None:
                        self._unlinked(domain, now)
                        self._outputs.append(ForForeignLinks(CloseServerLink(former, REPLACED)))
                    self._links[domain] = link
                    if is_ours:
                        self._choose(self._choices[domain].opened(server))
                    self._troubles.report(domain, "")
                    self._linked(domain, now)
            case ServerLinkClosed(link=link, server=server, reason=reason):
                if domain in self._choices:
                    self._choose(self._choices[domain].closed(server, now))
                if self._links.get(domain) == link:
                    del self._links[domain]
                    if self._gateways.is_in_turn:
                        self._troubles.note(domain, shown(f"its last link was closed: {reason}"))
                    self._unlinked(domain, now)
            case ServerMessageReceived(link=link, payload=payload):
                self._on_message(domain, link, payload, now)
            case PeerUnreachable(reason=reason) if domain in self._domains:
                self._troubles.unreachable(domain, reason, now)
            case ServerReachable() if domain in self._domains:
                self._troubles.report(domain, "")
        return self._take_examined(now)

    def gateways_found(self, found: KnowServers, now: float) -> list[GatewayOutput]:
        """Use the gateways of a domain that the DNS names, in this order."""
        if (choice := self._choices.get(found.group)) is not None:
            self._choose(choice.replace([name for name, _ in found.servers]))
        self._outputs.append(ForForeignLinks(found))
        if choice is not None and self._gateways.is_in_turn:
            self._choose(choice.start(now))
        return self._take()

    def _linked(self, domain: str, now: float) -> None:
        """Begin with a foreign domain on a new link.

        It may have had one to another gateway here since the last one, and servers here filters that are not known.
        """
        if domain in self._had and self._gateways.may_have_acted:
            self._lives.begin_anew()
            self._begun_again(now)
        elif not self._table.awaited:
            self._route([DomainLinked(domain)], now)
        self._had.add(domain)
        if self._domains[domain].is_causal:
            self._to_domain(domain, OrderStated())
        self._begin(domain, now)

    def _on_message(self, domain: str, link: int, payload: bytes, now: float) -> None:
        if self._links.get(domain) != link:
            self._consumed(link, 1)
            return
        try:
            message = decode(payload)
            match message:
                case EventForwarded() | EventsLost() | EventPassed():
                    self._imported(domain, self._imports[domain].received(message, self._wall_us, now))
                    return
                case FarForwarded() | ServersWanted() | ServersNamed():
                    self._pass_on(domain, message)
                case EventsTaken():
                    self._apply(domain, self._exports[domain].taken(message, now))
                case FiltersSent() if self._unanswered[domain]:
                    pass
                case FiltersSent(payload=inner):
                    # Without the whole of the own interest no filter is sent; the window of the link bounds what waits.
                    if self._table.awaited:
                        self._early.setdefault(domain, []).append(DomainMessage(domain, inner))
                        return
                    self._route([DomainMessage(domain, inner)], now)
                case FiltersBegun():
                    if not self._lives.may_begin(domain, now):
                        raise RemoteProtocolError("it forgets all filters too often", None)
                    self._outputs.append(ForForeignLinks(SendOnServerLink(link, encode(FiltersAnswered()))))
                    if not self._table.awaited:
                        self._route([DomainLinked(domain)], now)
                case OrderStated():
                    self._order.stated(domain)
                case FiltersAnswered():
                    self._unanswered[domain] = max(0, self._unanswered[domain] - 1)
            self._consumed(link, 1)
        except RemoteProtocolError as error:
            self._close(domain, f"{domain}: {error}")

    def _pass_on(self, domain: str, message: FarForwarded | ServersWanted | ServersNamed) -> None:
        """Pass on what a server of another domain says to one here, or answer it."""
        for output in self._far.outputs(domain, message, self._reachable):
            if isinstance(output, ToServer):
                self._outputs.append(output)
            else:
                self._to_domain(domain, output)

    def _to_domain(self, domain: str, message: Message) -> None:
        if (link := self._links.get(domain)) is not None:
            self._outputs.append(ForForeignLinks(SendOnServerLink(link, encode(message))))

    def _close(self, domain: str, reason: str) -> None:
        reason = shown(reason)
        if (link := self._links.get(domain)) is not None:
            self._troubles.report(domain, reason)
            self._outputs.append(ForForeignLinks(CloseServerLink(link, reason)))

    def _unlinked(self, domain: str, now: float) -> None:
        self._early.pop(domain, None)
        self._order.unlinked(domain)
        self._unanswered.pop(domain, None)
        self._taken.pop(domain, None)
        self._apply(domain, self._exports[domain].end(f"the link to {domain} is closed", now))
        if (publishing := self._imports[domain].link) is not None:
            self._publishing.pop(publishing, None)
        self._imported(domain, self._imports[domain].end())
        self._route([DomainUnlinked(domain)], now)

    def _route(self, inputs: Sequence[RoutingInput], now: float) -> None:
        """Give inputs to the routing of filters, and carry out what it decides."""
        for output in self._lives.present.step(inputs, now):
            match output:
                case SendToDomain(domain=domain, payload=payload):
                    if (link := self._links.get(domain)) is not None:
                        message = encode(FiltersSent(payload))
                        self._outputs.append(ForForeignLinks(SendOnServerLink(link, message)))
                case WantedByDomain(domain=domain, change=change):
                    self._doubtful[domain] -= set(change.added)
                    self._apply(domain, self._exports[domain].wanted(change, now))
                case WantedKnown(domain=domain, types=types):
                    self._known[domain] = self._known.get(domain, frozenset()) | types
                    self._begin(domain, now)
                case RoutingSuperseded() if self._lives.begin_again(output, now):
                    self._begun_again(now)
                    return
                case RoutingFailed(domain=domain, reason=reason):
                    self._close(domain, reason)
                case SetTimer(key=key, at=at):
                    self._outputs.append(SetTimer(("routing", key), at))

    def _begin(self, domain: str, now: float) -> None:
        """Send events to a foreign domain, once all that it wants is known: the servers have its former filters."""
        sends = self._domains[domain].sends
        if not sends or not self._known.get(domain, frozenset()) >= sends:
            return
        if doubtful := self._doubtful[domain]:
            self._apply(domain, self._exports[domain].wanted(InterestChange((), tuple(doubtful)), now))
            self._doubtful[domain] = set()
        if domain in self._links:
            self._apply(domain, self._exports[domain].begin(now))

    def _begun_again(self, now: float) -> None:
        """Tell all domains everything, because the routing of filters has begun again."""
        self._everywhere.forget()
        self._known.clear()
        self._had = set(self._links)
        self._gateways.begin_anew()
        self._doubtful = {name: set(exports.interests()) for name, exports in self._exports.items()}
        for domain, link in self._links.items():
            self._await_answer(domain)
            self._consumed(link, len(self._early.pop(domain, ())))
            self._outputs.append(ForForeignLinks(SendOnServerLink(link, encode(FiltersBegun()))))
        self._route([OwnInterestChanged(InterestChange(tuple(self._table.wanted())))], now)
        if not self._table.awaited:
            self._route([DomainLinked(each) for each in self._links], now)

    def _await_answer(self, domain: str) -> None:
        """Ignore what a domain sends about filters until it has answered: it is for an earlier life of the routing."""
        self._unanswered[domain] += 1

    def _apply(self, domain: str, outputs: Iterable[ExportOutput]) -> None:
        """Pass on what the sessions of a foreign domain emit."""
        for output in outputs:
            match output:
                case ToDomain(message=message):
                    if (link := self._links.get(domain)) is not None:
                        self._outputs.append(ForForeignLinks(SendOnServerLink(link, encode(message))))
                case SetTimer(key=key, at=at):
                    self._outputs.append(SetTimer(("export", domain, key), at))
                case ToServer():
                    self._outputs.append(output)

    def _imported(self, domain: str, result: Imported) -> None:
        """Carry out what publishing the events of a foreign domain needs."""
        self._outputs += result.for_broker
        if result.for_broker and isinstance(opened := result.for_broker[0], LinkOpened):
            self._publishing[opened.link] = domain
        if (link := self._links.get(domain)) is not None:
            for taken in result.taken:
                self._taken.setdefault(domain, {})[taken.server] = taken
            self._consumed(link, result.done)
        if (lost := result.lost) is not None:
            self._outputs.append(ForeignEventsLost(domain, lost.server, lost.count, shown(lost.reason)))
        if result.report_at is not None:
            self._outputs.append(SetTimer(("lost", domain), result.report_at))
        if result.examine_at is not None:
            self._outputs.append(SetTimer(("causes", domain), result.examine_at))
        if result.retry_at is not None:
            self._outputs.append(SetTimer(("import", domain), result.retry_at))

    def _take_examined(self, now: float) -> list[GatewayOutput]:
        """Publish what has waited for events that have come meanwhile; return all outputs."""
        while self._order.take_changed():
            for domain in sorted(self._order.domains):
                self._imported(domain, self._imports[domain].examine(now))
        return self._take()

    def _consumed(self, link: int, count: int) -> None:
        if count:
            self._read[link] += count

    def _choose(self, several: Iterable[Choice]) -> None:
        for each in several:
            self._outputs.append(each if isinstance(each, SetTimer | CancelTimer | ByOpener) else ForForeignLinks(each))

    # Timers and status ---------------------------------------------------------------------------------------------

    def timer_fired(self, key: object, now: float) -> list[GatewayOutput]:
        """Take a timer of the gateway."""
        match key:
            case (str(), str(domain), *_) if domain not in self._domains and key[0] != "routing":
                pass  # a former gateway of this server has set it
            case ("turn",):
                self._take_turn(now)
            case ("placing",):
                self._is_placing = False
                self._wanted_here(self._table.go_on(), now)
            case ("routing", inner):
                self._route([TimerFired(inner)], now)
            case ("export", str(domain), inner):
                self._apply(domain, self._exports[domain].timer_fired(inner, now))
            case ("import", str(domain)):
                self._imported(domain, self._imports[domain].retry(now))
            case ("lost", str(domain)):
                self._imported(domain, self._imports[domain].losses_due(now))
            case ("causes", str(domain)):
                self._imported(domain, self._imports[domain].examine(now, is_timer=True))
            case ("connect", str(domain)):
                self._tried(domain, now)
        return self._take_examined(now)

    def rows(self) -> dict[str, Mapping[str, Any]]:
        """Return the state of each foreign domain, as it is listed."""
        return {
            name: {
                "is_linked": name in self._links,
                "is_in_turn": self._gateways.is_in_turn,
                "is_known": self._known.get(name, frozenset()) >= each.sends,
                "is_settled": self._exports[name].is_settled,
                "filters": sum(one.subscriptions for one in self._exports[name].statuses()),
                "sent": self._exports[name].sent,
                "waiting": self._imports[name].waiting,
                **self._imports[name].counts,
                "awaited": list(self._table.awaited),
                "order": self._order.agreement(name),
                "trouble": self._trouble(name),
                "visitors": each.visitors,
            }
            for name, each in self._domains.items()
        }

    def _tried(self, domain: str, now: float) -> None:
        """Try the next gateway of a domain, unless there is a link meanwhile."""
        if domain not in self._choices:
            return
        # The links report about an only gateway; of several, each is given up before that.
        has_several = self._choices[domain].has_several(self._reachable)
        if has_several and domain not in self._links and not self._troubles.of(domain):
            self._troubles.unreachable(domain, f"none of its gateways has answered yet; {LINK_HINT}", now)
        self._choose(self._choices[domain].timer_fired(now, self._reachable))

    def _trouble(self, domain: str) -> str:
        trouble = self._troubles.of(domain)
        if trouble or domain in self._links or not self._gateways.is_in_turn:
            return trouble
        if not self._domains[domain].gateways and not self._domains[domain].is_looked_up:
            return NO_PATH
        if domain in self._choices:
            return ""
        return f"{domain} opens the link, and has not done so; {LINK_HINT}"

    def _take(self) -> list[GatewayOutput]:
        outputs, self._outputs = self._outputs + self._troubles.take(), []
        return outputs
