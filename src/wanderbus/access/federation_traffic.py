"""Messages between domains: routes of the links to foreign gateways, of the federation's part, and of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanderbus.access.federation_parts import FEDERATION, FOREIGN_LINKS, FederationParts
from wanderbus.access.lone_handovers import LoneHandovers
from wanderbus.broker.messages import LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.servers.foreign_messages import DomainEventsLost, ForeignInterestEffective, OrderedDomains
from wanderbus.broker.servers.server_users import domain_of
from wanderbus.broker.signals import BrokerInput, ForFederation
from wanderbus.broker.state.state import BrokerState
from wanderbus.composition import Composition
from wanderbus.federation.circuit_messages import FEDERATION_PREFIX
from wanderbus.federation.member import CHANGED, FederationMember
from wanderbus.federation.messages import (
    AtFarLinks,
    AtForeignLinks,
    FederationChanged,
    FederationInput,
    FederationOutput,
    ForeignLinkReport,
    ForFarLinks,
    ForForeignLinks,
)
from wanderbus.machine import ClockRead, Output, scoped
from wanderbus.peers.far_servers import FarReport, FarRequest
from wanderbus.peers.messages import (
    CloseServerLink,
    EndServerLinks,
    SendOnServerLink,
    ServerLinksInput,
    ServerLinksOutput,
)
from wanderbus.peers.parts import BROKER, HANDOVERS, SERVER_LINKS
from wanderbus.peers.server_traffic import ServerTraffic


class FederationTraffic:
    """Routes between the federation's part, the broker, and the links within the domain and between domains.

    :param servers: the traffic with the other servers of the domain; None if this server is alone
    :param lone: moves sessions to other domains then, if any may move
    """

    def __init__(
        self,
        parts: Composition[Output],
        federation: FederationParts,
        servers: ServerTraffic | None,
        lone: LoneHandovers | None = None,
    ) -> None:
        self._parts = parts
        self._handovers = servers or lone
        self._member, self._links, self._domains, _ = federation
        self._add_parts()
        if servers is not None:
            servers.add_service(FEDERATION_PREFIX, FEDERATION)
        if self._handovers is not None:
            self._handovers.use_far_links(self._to_far)

    def _add_parts(self) -> None:
        self._parts.add(FEDERATION, self._member.step, self.route_member)
        if self._links is not None:
            self._parts.add(FOREIGN_LINKS, self._links.step, self.route_links)

    def start(self, now: float, state: BrokerState, domain: str) -> None:
        """Begin; a gateway opens links to other domains. ``state`` is that of the broker, ``domain`` the own one."""
        owners = {domain_of(row.user, domain) for row in state.sessions.values() if row.subscriptions}
        sharing = [each for each in owners if each is not None]
        self.route_member(scoped(FEDERATION.name, self._member.start(now, sharing)), now)

    def end_links(self) -> None:
        """Close the links to other domains; what the present member does with that comes before :meth:`change`."""
        if self._links is not None:
            self._parts.give(FOREIGN_LINKS, [EndServerLinks(CHANGED)])

    def change(self, changed: FederationChanged, now: float) -> None:
        """Let another member, and other links, take the place of the present ones, because the file has changed."""
        former = self._member
        self.route_member(former.end(), now)
        self._member, self._links = former.successor(changed.parameters, epoch=changed.epoch), changed.links
        self._domains.use(changed.foreign)
        self._add_parts()
        self.route_member(scoped(FEDERATION.name, self._member.take_over(former, now)), now)

    @property
    def member(self) -> FederationMember:
        """Return the present part in the federation."""
        return self._member

    def clock_read(self, given: ClockRead) -> None:
        """Let the part know the wall clock before its next batch, and those that hand sessions over."""
        self._parts.precede(FEDERATION, given)
        self._parts.precede(HANDOVERS, given)

    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the state of each foreign domain, by its name."""
        return self._member.rows()

    def route_links(self, outputs: list[ServerLinksOutput], now: float) -> None:
        """Pass what arrives from other domains to the part, as one batch."""
        reports: list[FederationInput] = []
        for output in outputs:
            if isinstance(output, ForeignLinkReport):
                reports.append(AtForeignLinks(output))
            else:
                self._parts.emit(output)
        self._parts.give(FEDERATION, reports)

    def route_member(self, outputs: list[FederationOutput], now: float) -> None:
        """Pass messages to both kinds of links, and to the broker, each as one batch."""
        for_broker: list[BrokerInput] = []
        for_servers: list[ServerLinksInput] = []
        for_foreign: list[ServerLinksInput] = []
        at_far: list[FarReport] = []
        for output in outputs:
            match output:
                case LinkOpened() | LinkClosed() | MessageArrived():
                    for_broker.append(output)
                case DomainEventsLost() | ForeignInterestEffective() | OrderedDomains():
                    for_broker.append(output)
                case SendOnServerLink() | CloseServerLink():
                    for_servers.append(output)
                case ForForeignLinks(request=request):
                    for_foreign.append(request)
                case AtFarLinks(report=report):
                    at_far.append(report)
                case _:
                    self._parts.emit(output)
        self._parts.give(SERVER_LINKS, for_servers)
        if at_far and self._handovers is not None:
            self._handovers.at_far_links(at_far)
        self._parts.give(FOREIGN_LINKS, for_foreign)
        self._parts.give(BROKER, for_broker)

    def _to_far(self, requests: Sequence[FarRequest]) -> None:
        self._parts.give(FEDERATION, [ForFarLinks(each) for each in requests])

    def give_broker_outputs(self, outputs: Iterable[SendOnLink | LinkDropped | ForFederation]) -> None:
        """Pass on what the broker sends to foreign domains, and what users here want of them."""
        self._parts.give(FEDERATION, [*outputs])
