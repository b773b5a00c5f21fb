"""A server's part in the federation of its domain; at a gateway, with all that the gateway does (SPEC M).

::

    broker ──DomesticInterestChanged, SendOnLink──▶ ┌──────────────────┐ ──▶ messages to servers of the own domain
           ◀─LinkOpened, MessageArrived──────────── │ FederationMember │ ◀──
                                                    └──────────────────┘ ◀─▶ links to gateways of other domains

A server talks to a gateway on the link that it has opened to it, about interest, and a gateway to a server likewise,
about circuits; answers use the same link. The gateway that this server is itself needs no link. A gateway talks to one
whose turn comes earlier on the link that it has opened to it, about the links that it has to other domains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from wanderbus.broker.messages import DomesticInterestChanged, LinkDropped, SendOnLink
from wanderbus.broker.servers.foreign_messages import (
    CausesReached,
    DomainEventsLost,
    ForeignInterestAsked,
    ForeignInterestEffective,
    OrderedDomains,
)
from wanderbus.channels.interest.messages import FromReceiver, FromSender
from wanderbus.channels.interest.messages import decode as decode_interest
from wanderbus.channels.interest.messages import encode as encode_interest
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation import circuit_messages
from wanderbus.federation.circuit_host import CircuitHost
from wanderbus.federation.circuit_messages import (
    CircuitClosed,
    CircuitMessage,
    CircuitOpened,
    EverywhereAnswered,
    EverywhereAsked,
    ForeignLinkAsked,
    ForeignLinkClosed,
    ForeignLinkConsumed,
    ForeignLinkMessage,
    ForeignLinkOpened,
    FromFar,
    InterestSent,
    LossReported,
    PartBegun,
    ServersAsked,
    ServersTold,
    SharedLinkMessage,
    ToFar,
)
from wanderbus.federation.domestic_interest import DomesticSource, ReceivedTypes, messages_of
from wanderbus.federation.everywhere import EverywhereRequests
from wanderbus.federation.everywhere_messages import InterestCounts
from wanderbus.federation.export_messages import ToServer, ToServerMessage
from wanderbus.federation.far.links import FarLinks
from wanderbus.federation.far.reports import FarLinksInput
from wanderbus.federation.gateway import Gateway, GatewayOutput
from wanderbus.federation.gateway_choice import domain_of_link, link_name
from wanderbus.federation.gateway_lookups import GatewayLookups
from wanderbus.federation.messages import (
    AtFarLinks,
    AtForeignLinks,
    FederationInput,
    FederationOutput,
    ForeignEventsLost,
    ForeignLinkReport,
    ForFarLinks,
    ForForeignLinks,
    GatewaysFound,
)
from wanderbus.federation.named_servers import shown
from wanderbus.federation.parameters import FederationParameters
from wanderbus.federation.routed.links import TIMER as ROUTED_TIMER
from wanderbus.federation.routed.links import RoutedLinks
from wanderbus.federation.routed.outputs import ForSharedLinks, RoutedOutput
from wanderbus.federation.shared_links import SharedLinks
from wanderbus.federation.shared_outputs import AtGateway, ByOpener, ForOwnLink, OnPeerLink, SharedOutput
from wanderbus.filters import Filter
from wanderbus.machine import ClockRead, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import FIRST_FAR_LINK
from wanderbus.peers.messages import (
    CloseServerLink,
    KnowServers,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)

CHANGED: Final = "the federation file has changed"
"""Reason for which links are closed when another member takes the place of one."""

Entries = tuple[tuple[str, Filter], ...]

_HERE: Final = 0
"""Number of the link of this server to itself."""


class FederationMember:
    """The machine; ``step`` works as in every machine.

    :param lineage: returns a subject, its parent and so on up to the top
    :param new_link: returns the number of a link of the broker that is not used yet
    :param epoch: identifies this life of the server; it rises with each
    :param former: the member whose place it takes, in the same life of the server
    """

    def __init__(
        self,
        parameters: FederationParameters,
        lineage: Callable[[str], Sequence[str]],
        new_link: Callable[[], int],
        *,
        epoch: int,
        former: FederationMember | None = None,
    ) -> None:
        self._server = parameters.server
        self._lineage, self._new_link, self._epoch = lineage, new_link, epoch
        self._generation: int = 0 if former is None else former._generation + 1
        self._host = CircuitHost(parameters.own, [each.name for each in parameters.domains], new_link)
        types = ReceivedTypes(parameters.received, lineage)
        self._lossy = {each.name: ReceivedTypes(each.receives, lineage).subjects for each in parameters.domains}
        """Subjects of the subscriptions that may match the events of each foreign domain."""
        others = [each for each in parameters.gateways if each != self._server]
        self._source = DomesticSource(self._server, others, types, epoch)
        self._gateways = frozenset(parameters.gateways)
        self._ordered = OrderedDomains(parameters.causal, parameters.gateways[0])
        self._everywhere: EverywhereRequests = EverywhereRequests() if former is None else former._everywhere
        self._given_up_at: float | None = None
        """Time of the timer for these."""
        self._gateway: Gateway | None = None
        self._shared: SharedLinks | None = None
        self._routed: RoutedLinks | None = None
        if self._server in parameters.gateways:
            self._gateway = Gateway(
                parameters.own,
                self._server,
                parameters.gateways,
                parameters.servers,
                parameters.domains,
                types,
                parameters.routing.without_trees(),
                new_link,
                epoch,
                self._generation,
                parameters.access or parameters.servers,
            )
            known = [link_name(domain.name, each) for domain in parameters.domains for each in domain.gateways]
            self._shared = SharedLinks(parameters.gateways, self._server, known)
            self._routed = RoutedLinks(parameters.routing, epoch, parameters.gateways.index(self._server))
        names = [each.name for each in parameters.domains]
        self._far: FarLinks = former._far if former else FarLinks(names, count(FIRST_FAR_LINK).__next__, epoch)
        self._far.use(names)
        looked_up = [each.name for each in parameters.domains if each.is_looked_up and self._gateway is not None]
        self._lookups = GatewayLookups(looked_up)
        self._own: dict[str, int] = {}
        """The link that this server has opened to each other one."""
        self._accepted: dict[int, str] = {}
        """Servers that have opened links to this one, by the link."""
        self._subscriptions: dict[str, Entries] = {}
        """All subscriptions of users here, for a successor."""
        self._outputs: list[FederationOutput] = []
        self._loop: deque[tuple[bool, ToServerMessage]] = deque()
        """Messages between this server and the gateway that it is; true if the gateway is the sender."""
        self._reports: deque[ForeignLinkReport] = deque()
        """Reports of links to other domains that the gateway here uses."""
        self._at_gateway: deque[ForeignLinkReport] = deque()
        """These, and those of links that go through other domains."""
        self._timer_at: float | None = None

    def start(self, now: float, sharing: Iterable[str] = ()) -> list[FederationOutput]:
        """Begin; end the sessions of those domains with which this server has been ``sharing`` events, and is not now.

        The file may have changed before this start.
        """
        self._begin(sharing, now)
        return self._finish(now)

    def _begin(self, sharing: Iterable[str], now: float) -> None:
        """Let the domains leave that are not foreign ones any more, and begin as a gateway."""
        self._outputs.append(self._ordered)
        self._outputs += self._host.leave(sorted(set(sharing) - self._lossy.keys()), self._epoch)
        if self._gateway is not None:
            self._route(self._gateway.start(now))
        self._outputs += self._lookups.start(now)

    def end(self) -> list[FederationOutput]:
        """Return what closes the links of the broker, before a :meth:`successor` takes the place of this member."""
        self._outputs += self._host.end(CHANGED)
        if self._gateway is not None:
            self._outputs += self._gateway.end(CHANGED)
        outputs, self._outputs = self._outputs, []
        return outputs

    def successor(self, parameters: FederationParameters, *, epoch: int) -> FederationMember:
        """Return a member with other parameters, which is to :meth:`take_over`; ``epoch`` is above that of this one."""
        return FederationMember(parameters, self._lineage, self._new_link, epoch=epoch, former=self)

    def take_over(self, former: FederationMember, now: float) -> list[FederationOutput]:
        """Begin in place of another member, with its links to servers here, which are to begin again on them."""
        self._everywhere.ask_again()
        self._begin(former._lossy, now)
        self._inherit(former, now)
        self._say_begun(former)
        for link, server in former._accepted.items():
            self._on_link_opened(ServerLinkOpened(link, server, is_ours=False), now)
        for server, link in former._own.items():
            self._on_link_opened(ServerLinkOpened(link, server, is_ours=True), now)
        return self._finish(now)

    def _inherit(self, former: FederationMember, now: float) -> None:
        self._on_subscriptions(DomesticInterestChanged(former._subscriptions), now)

    def _say_begun(self, former: FederationMember) -> None:
        """Let each server here forget all that it has heard on its links, as if they had broken."""
        begun = circuit_messages.encode(PartBegun())
        self._outputs += [SendOnServerLink(link, begun) for link in (*former._own.values(), *former._accepted)]

    def called_at(self, contacts: tuple[str, ...]) -> None:
        """Tell servers of other domains that their users call this one at ``contacts``."""
        self._far.called_at(contacts)

    def rows(self) -> dict[str, Mapping[str, Any]]:
        """Return the state of each foreign domain; none at a server that is no gateway."""
        if self._gateway is None or self._routed is None:
            return {}
        return {name: {**row, "through": self._routed.through(name)} for name, row in self._gateway.rows().items()}

    def step(self, inputs: Iterable[FederationInput], now: float) -> list[FederationOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        gateway = self._gateway
        for given in inputs:
            if isinstance(given, SendOnLink | LinkDropped):
                self._on_broker(given, now)  # what the gateway here gets of these goes round as one batch
                continue
            self._go_round(now)
            match given:
                case ServerMessageReceived():
                    self._on_message(given, now)
                case AtForeignLinks(report=report) if self._shared is not None:
                    self._note_link(report, now)
                    self._share(self._shared.at_links(report))
                case GatewaysFound() if gateway is not None:
                    self._on_found(gateway, given, now)
                case TimerFired(key=("lookup", str(domain))):
                    self._outputs += self._lookups.timer_fired(domain, now)
                case DomesticInterestChanged():
                    self._on_subscriptions(given, now)
                case CausesReached(ids=ids) if gateway is not None:
                    self._route(gateway.causes_reached(ids, now))
                case ForeignInterestAsked(name=name):
                    self._everywhere.ask(name, now)
                case TimerFired(key="everywhere"):
                    self._given_up_at = None
                case ServerLinkOpened():
                    self._on_link_opened(given, now)
                case ServerLinkClosed():
                    self._on_link_closed(given, now)
                case ClockRead(wall_us=wall_us) if gateway is not None and self._routed is not None:
                    gateway.clock_read(wall_us)
                    self._routed.clock_read(wall_us)
                case TimerFired(key=key) if key == ROUTED_TIMER and self._routed is not None:
                    self._route_routed(self._routed.timer_fired(now))
                case ForFarLinks(request=request):
                    self._step_far(request, now)
                case TimerFired(key=("far", inner)):
                    self._step_far(TimerFired(inner), now)
                case TimerFired(key="repeat"):
                    self._timer_at = None
                    self._send_interest(self._source.repeat(now))
                case TimerFired(key=key) if gateway is not None:
                    self._route(gateway.timer_fired(key, now))
        return self._finish(now)

    def _on_subscriptions(self, changed: DomesticInterestChanged, now: float) -> None:
        for each in changed.removed:
            self._subscriptions.pop(each, None)
        self._subscriptions.update(changed.added)
        self._send_interest(self._source.changed(changed, now))
        if self._gateway is not None:
            self._route(self._gateway.interest_changed(changed, now))

    def _note_link(self, report: ForeignLinkReport, now: float) -> None:
        """Note the links that this gateway has, whoever uses them: without one, the DNS is asked again."""
        match report:
            case ServerLinkOpened(link=link, server=name):
                self._lookups.opened(domain_of_link(name), link)
            case ServerLinkClosed(link=link, server=name):
                self._outputs += self._lookups.closed(domain_of_link(name), link, now)

    def _on_found(self, gateway: Gateway, found: GatewaysFound, now: float) -> None:
        """Use the gateways that the DNS names."""
        if (gateways := self._lookups.found(found)) is not None:
            servers = [(link_name(found.domain, name), address) for name, address in gateways.items()]
            self._route(gateway.gateways_found(KnowServers(found.domain, tuple(servers)), now))
        elif found.failure and self._lookups.is_unknown(found.domain):
            reason = shown(f"its gateways are not found in the DNS: {found.failure}")
            self._route(gateway.at_foreign_links(PeerUnreachable(link_name(found.domain, "dns"), reason), now))

    def _on_broker(self, output: SendOnLink | LinkDropped, now: float) -> None:
        if self._host.has(output.link):
            self._to_gateway(*self._host.answer(output))
        elif closing := self._host.left(output):
            self._outputs += closing
        elif self._gateway is not None:
            self._route(self._gateway.from_broker(output, now))

    def _take_circuit(self, link: int, message: CircuitOpened | CircuitMessage | CircuitClosed) -> None:
        self._outputs += self._host.take(link, message)
        for peer_link, closed in self._host.take_replaced():
            self._to_gateway(peer_link, closed)

    def _to_gateway(self, link: int, message: CircuitMessage | CircuitClosed) -> None:
        if link == _HERE:
            self._loop.append((False, message))
        else:
            self._outputs.append(SendOnServerLink(link, circuit_messages.encode(message)))

    # Links to servers of the own domain --------------------------------------------------------------------------

    def _on_link_opened(self, opened: ServerLinkOpened, now: float) -> None:
        server = opened.server
        if not opened.is_ours:
            self._accepted[opened.link] = server
            if self._shared is not None:
                self._shared.peer_link_opened(server, opened.link)
            return
        self._own[server] = opened.link
        if server in self._source.gateways:
            self._send_interest(self._source.link_up(server, now))
        if self._gateway is not None:
            self._route(self._gateway.server_up(server, now))
        if self._shared is not None:
            self._share(self._shared.reachable(self._own))

    def _on_link_closed(self, closed: ServerLinkClosed, now: float) -> None:
        server, link = closed.server, closed.link
        self._accepted.pop(link, None)
        self._outputs += self._host.link_closed(link, closed.reason)
        if self._shared is not None:
            self._share(self._shared.peer_link_closed(link))
        if self._own.get(server) == link:
            del self._own[server]
            self._source.link_down(server)
            self._everywhere.gone(server)
            if self._gateway is not None:
                self._route(self._gateway.server_down(server, now))
            if self._shared is not None:
                self._share(self._shared.reachable(self._own))

    def _on_message(self, received: ServerMessageReceived, now: float) -> None:
        server, link = received.server, received.link
        is_own = self._own.get(server) == link
        try:
            message = circuit_messages.decode(received.payload)
            match message:
                case PartBegun():
                    self._on_link_closed(ServerLinkClosed(link, server, f"the part of {server} has begun again"), now)
                    self._on_link_opened(ServerLinkOpened(link, server, is_ours=is_own), now)
                case InterestSent(payload=payload):
                    self._on_interest(server, link, decode_interest(payload), is_own=is_own, now=now)
                case CircuitOpened():
                    if not is_own:
                        self._take_circuit(link, message)
                case FromFar() | ServersTold() if not is_own and server in self._gateways:
                    self._step_far(message, now)
                case ToFar() | ServersAsked() if not is_own and self._gateway is not None:
                    self._route(self._gateway.from_far(server, message))
                case CircuitMessage() | CircuitClosed() if not is_own:
                    self._take_circuit(link, message)
                case EverywhereAsked(number=number) if not is_own:
                    if self._gateway is not None:
                        self._gateway.everywhere_asked(link, number)
                case EverywhereAnswered(number=number) if is_own:
                    self._everywhere.answered(server, number)
                case LossReported(domain=domain):
                    if not is_own and server in self._gateways:
                        self._lose(ForeignEventsLost(domain, message.server, message.count, shown(message.reason)))
                case CircuitMessage() | CircuitClosed() if self._gateway is not None:
                    self._route(self._gateway.from_server(server, [message], now))
                case ForeignLinkOpened() | ForeignLinkMessage() | ForeignLinkClosed() | ForeignLinkConsumed():
                    self._on_shared(server, link, message, is_own=is_own)
                case ForeignLinkAsked() if is_own and self._shared is not None:
                    self._share(self._shared.opening_asked(server, link, message))
        except RemoteProtocolError as error:
            self._outputs.append(CloseServerLink(link, f"{server}: {error}"))

    def _on_interest(
        self, server: str, link: int, message: FromSender | FromReceiver, *, is_own: bool, now: float
    ) -> None:
        if not isinstance(message, FromSender):
            if is_own:
                self._send_interest(self._source.receive(server, message, now))
        elif self._gateway is not None and not is_own:
            answer, outputs = self._gateway.interest_received(server, message, now)
            if answer is not None:
                payload = circuit_messages.encode(InterestSent(encode_interest(answer)))
                self._outputs.append(SendOnServerLink(link, payload))
            self._route(outputs)

    # Servers of other domains ------------------------------------------------------------------------------------

    def _step_far(self, given: FarLinksInput, now: float) -> None:
        """Step the links to servers of other domains; each gateway that has a link there passes on what they send."""
        for output in self._far.take([given], now):
            match output:
                case ToFar() | ServersAsked():
                    for each in sorted(self._gateways):
                        if each == self._server and self._gateway is not None:
                            self._route(self._gateway.from_far(self._server, output))
                        elif link := self._own.get(each):
                            self._outputs.append(SendOnServerLink(link, circuit_messages.encode(output)))
                case SetTimer(key=key, at=at):
                    self._outputs.append(SetTimer(("far", key), at))
                case _:
                    self._outputs.append(AtFarLinks(output))

    def _send_interest(self, outputs: Iterable[Output]) -> None:
        for each in messages_of(outputs):
            if link := self._own.get(each.server):
                payload = circuit_messages.encode(InterestSent(encode_interest(each.message)))
                self._outputs.append(SendOnServerLink(link, payload))

    # Links to other domains --------------------------------------------------------------------------------------

    def _on_shared(self, server: str, link: int, message: SharedLinkMessage, *, is_own: bool) -> None:
        if self._shared is None or not (is_own or self._shared.takes_from(server)):
            raise RemoteProtocolError("only a gateway lends links, to one whose turn comes before", None)
        take = self._shared.from_user if is_own else self._shared.from_holder
        self._share(take(link, message))

    def _share(self, outputs: Iterable[SharedOutput]) -> None:
        """Pass on what concerns links to other domains, here or at another gateway."""
        for output in outputs:
            match output:
                case AtGateway(report=report):
                    self._reports.append(report)
                case OnPeerLink(link=link, message=message):
                    self._outputs.append(SendOnServerLink(link, circuit_messages.encode(message)))
                case ForOwnLink(request=request):
                    self._outputs.append(ForForeignLinks(request))

    def _route_routed(self, outputs: Iterable[RoutedOutput]) -> None:
        """Pass on what concerns links that go through other domains."""
        for output in outputs:
            match output:
                case AtGateway(report=report):
                    self._at_gateway.append(report)
                case ForSharedLinks(request=request):
                    assert self._shared is not None, "a gateway has it"
                    self._share(self._shared.requested(request))
                case SetTimer():
                    self._outputs.append(output)

    # The gateway here ---------------------------------------------------------------------------------------------

    def _route(self, outputs: Iterable[GatewayOutput]) -> None:
        """Pass on what the gateway here emits."""
        for output in outputs:
            if isinstance(output, ForForeignLinks) and self._routed is not None:
                self._route_routed(self._routed.requested(output.request))
            elif isinstance(output, ByOpener):
                if self._shared is not None:
                    self._share(self._shared.open_by(output.gateway, output.request))
            elif isinstance(output, ForeignEventsLost):
                self._lose(output)
                report = LossReported(output.domain, output.server, output.count, output.reason)
                self._outputs += [
                    SendOnServerLink(each, circuit_messages.encode(report)) for each in self._own.values()
                ]
            elif isinstance(output, InterestCounts):
                self._answer_everywhere(output)
            elif not isinstance(output, ToServer):
                self._outputs.append(output)
            elif output.server == self._server:
                self._loop.append((True, output.message))
            elif link := self._own.get(output.server):
                self._outputs.append(SendOnServerLink(link, circuit_messages.encode(output.message)))

    def _lose(self, lost: ForeignEventsLost) -> None:
        """Report a loss here, and let the users read a gap who may have subscribed to what is lost."""
        if subjects := self._lossy.get(lost.domain):
            self._outputs += [lost, DomainEventsLost(lost.domain, subjects)]

    def _go_round(self, now: float) -> None:
        """Deliver what this server has for the gateway that it is, and the reverse."""
        for_gateway: list[CircuitMessage | CircuitClosed] = []
        while self._loop or self._reports or self._at_gateway or for_gateway:
            if self._at_gateway and self._gateway is not None:
                self._route(self._gateway.at_foreign_links(self._at_gateway.popleft(), now))
            elif self._reports and self._routed is not None:
                self._route_routed(self._routed.at_links(self._reports.popleft(), now))
            elif self._loop:
                is_from_gateway, message = self._loop.popleft()
                if isinstance(message, FromFar | ServersTold):
                    self._step_far(message, now)
                elif is_from_gateway:
                    self._take_circuit(_HERE, message)
                elif not isinstance(message, CircuitOpened):
                    for_gateway.append(message)
            elif self._gateway is not None:
                given, for_gateway = for_gateway, []
                self._route(self._gateway.from_server(self._server, given, now))

    def _ask_gateways(self) -> None:
        """Ask the gateways when the interest here counts in other domains, once they have all of it."""
        source = self._source
        others = [each for each in source.gateways if each in self._own]
        here = [] if self._gateway is None else [self._server]
        for number in self._everywhere.to_ask(source.version, source.confirmed, [*others, *here]):
            asked = circuit_messages.encode(EverywhereAsked(number))
            self._outputs += [SendOnServerLink(self._own[each], asked) for each in others]
            if self._gateway is not None:
                self._gateway.everywhere_asked(_HERE, number)

    def _answer_everywhere(self, answer: InterestCounts) -> None:
        """Pass on an answer of the gateway here."""
        if answer.link == _HERE:
            self._everywhere.answered(self._server, answer.number)
        else:
            payload = circuit_messages.encode(EverywhereAnswered(answer.number))
            self._outputs.append(SendOnServerLink(answer.link, payload))

    def _finish_everywhere(self, now: float) -> None:
        """Report what counts in other domains, and what is given up."""
        if names := self._everywhere.done(now):
            self._outputs.append(ForeignInterestEffective(names))
        if self._given_up_at is None and (at := self._everywhere.given_up_at) is not None:
            self._given_up_at = at
            self._outputs.append(SetTimer("everywhere", at))

    def _finish(self, now: float) -> list[FederationOutput]:
        self._go_round(now)
        self._ask_gateways()
        if self._gateway is not None:
            self._route(self._gateway.finish())
        at = self._source.repeat_at()
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            self._outputs.append(SetTimer("repeat", at))
        self._finish_everywhere(now)
        outputs, self._outputs = self._outputs, []
        return outputs
