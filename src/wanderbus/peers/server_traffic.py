"""Messages between servers: routes of the links, of the sessions at leaders, and of the broker's part in both.

A link that another server has opened is to the broker what the data channel of an agent is. On a link that this server
has opened, it has a session at the other one. Messages of the decentralised model have a prefix. Those of the causal
order between two servers use the link that the one with the lower name has opened, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from wanderbus.broker.messages import (
    CausalMessageArrived,
    DirectLinkClosed,
    DirectLinkOpened,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MessageArrived,
    SendOnLink,
)
from wanderbus.broker.servers.leader_messages import LeaderTrouble
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.sessions.handover_messages import HandoverOutput, UserUnowned
from wanderbus.broker.signals import BrokerInput, ForInterest, ForLeaders
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX, INTEREST_PREFIX
from wanderbus.channels.interest.multicast import MulticastCounts
from wanderbus.composition import Composition, Part
from wanderbus.machine import Output, scoped
from wanderbus.peers.far_servers import (
    FIRST_FAR_LINK,
    AskServers,
    FarReport,
    FarRequest,
    FarServerMet,
    without_prefix,
)
from wanderbus.peers.handover.messages import HANDOVER_PREFIX
from wanderbus.peers.handover.session_handovers import HandoversOutput, SessionHandovers
from wanderbus.peers.leader_status import LeaderStatus
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerLinksInput,
    ServerLinksOutput,
    ServerMessageReceived,
    ServerReachable,
)
from wanderbus.peers.owner_messages import (
    OWNER_PREFIX,
    CallPostponed,
    CallRedirected,
    CallServed,
    OfVisitors,
    OwnersOutput,
)
from wanderbus.peers.parts import (
    BROKER,
    DECENTRALISED_INTEREST,
    HANDOVERS,
    LEADERS,
    OWNERS,
    SERVER_LINKS,
    AboutServers,
    InterestInput,
    LeadersInput,
)
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.session_owners import SessionOwners

FIRST_LINK: Final = 2**48
"""Number of the first link between servers: no link of an agent has so high a number."""

OfLinks = ServerLinkOpened | ServerLinkClosed | ServerMessageReceived
"""Reports of the links about other servers."""

ForLinks = ConnectServer | DisconnectServer | SendOnServerLink | CloseServerLink
"""Requests of the parts to the links, of this domain or of others."""

_DEVICE: Final = "server"
_PREFIXES: Final = (INTEREST_PREFIX, CAUSAL_PREFIX)


class ServerTraffic:
    """Routes between the links to other servers, this server's sessions at leaders, and the broker.

    :param servers: the links, and the parts that use them
    :param domain: the domain of the servers, which their users at the broker have
    :param owners: decides where new calls are served; None serves all here
    :param on_decided: is called with each decision
    :param handovers: moves sessions between the servers; None moves none
    :param on_visitor_decided: is called with each decision about a visitor
    """

    def __init__(
        self,
        parts: Composition[Output],
        servers: ServerParts,
        domain: str,
        owners: SessionOwners | None = None,
        on_decided: Callable[[CallServed | CallRedirected | CallPostponed], None] = lambda decision: None,
        handovers: SessionHandovers | None = None,
        on_visitor_decided: Callable[[OfVisitors], None] = lambda decision: None,
    ) -> None:
        self._parts = parts
        self._name, self._links, self._leaders, self._interest, self._others, *_ = servers
        self._owners = owners
        self._on_decided = on_decided
        self._on_visitor_decided = on_visitor_decided
        self._handovers = handovers
        self._services: dict[bytes, Part[OfLinks, Any]] = {}
        """Parts that take the links, and the messages whose first byte is theirs."""
        self._to_far: Callable[[list[FarRequest]], None] = lambda requests: None
        """Takes requests to the links to servers of other domains."""
        self._domain = domain
        self._accepted: set[int] = set()
        """Links that other servers have opened."""
        parts.add(SERVER_LINKS, self._links.step, self.route_links)
        parts.add(LEADERS, self._leaders.step, self.route_leaders)
        if self._interest is not None:
            parts.add(DECENTRALISED_INTEREST, self._interest.step, self.route_interest)
        if owners is not None:
            parts.add(OWNERS, owners.step, self.route_owners)
            self._services[OWNER_PREFIX] = OWNERS
        if handovers is not None:
            parts.add(HANDOVERS, handovers.step, self.route_handovers)
            self._services[HANDOVER_PREFIX] = HANDOVERS

    def add_service(self, prefix: bytes, part: Part[OfLinks, Any]) -> None:
        """Let a part take the links, and the messages whose first byte is ``prefix``."""
        self._services[prefix] = part

    def statuses(self) -> list[LeaderStatus]:
        """Return the state of this server's session at each leader."""
        return self._leaders.statuses()

    def troubles(self) -> Mapping[str, str]:
        """Return for each server that cannot be reached the reason, as reported last."""
        found = {each: self._links.trouble(each) for each in self._others}
        return {server: reason for server, reason in found.items() if reason}

    def multicast_counts(self) -> Mapping[str, MulticastCounts]:
        """Return for each other server the changes of interest that this one has sent it by multicast."""
        return {} if self._interest is None else self._interest.multicast_counts()

    def handover_rows(self) -> Mapping[str, Mapping[str, int]]:
        """Return the sessions that are on their way to and from each other server."""
        return {} if self._handovers is None else self._handovers.rows()

    def start(self, now: float) -> None:
        """Open the links to all leaders, and to all servers if channels are decentralised or sessions have owners."""
        self._parts.give(SERVER_LINKS, self._leaders.start())
        if self._owners is not None:
            self._parts.give(SERVER_LINKS, self._owners.start(now))
        if self._handovers is not None:
            self.route_handovers(self._handovers.start(), now)
        if self._interest is not None:
            self.route_interest(scoped(DECENTRALISED_INTEREST.name, self._interest.start(now)), now)

    def route_links(self, outputs: list[ServerLinksOutput], now: float) -> None:
        """Pass what arrived to the parts and to the broker, each as one batch."""
        for_broker: list[BrokerInput] = []
        for_leaders: list[LeadersInput] = []
        for_interest: list[InterestInput] = []
        for_services: dict[bytes, list[OfLinks]] = {prefix: [] for prefix in self._services}
        read: dict[int, int] = {}
        for output in outputs:
            match output:
                case ServerMessageReceived(link=link, server=server, payload=payload):
                    if payload[:1] in for_services:
                        for_services[payload[:1]].append(ServerMessageReceived(link, server, payload[1:]))
                        read[link] = read.get(link, 0) + 1
                    elif self._interest is not None and payload[:1] in _PREFIXES:
                        if payload[:1] == CAUSAL_PREFIX:
                            for_broker.append(CausalMessageArrived(link, server, payload[1:]))
                        else:
                            for_interest.append(ServerMessageReceived(link, server, payload[1:]))
                        read[link] = read.get(link, 0) + 1
                    elif link in self._accepted:
                        for_broker.append(MessageArrived(link, payload))
                    else:
                        if self._leaders.has(server):
                            for_leaders.append(output)
                        read[link] = read.get(link, 0) + 1
                case ServerLinkOpened(link=link, server=server, is_ours=is_ours):
                    self._parts.emit(output)
                    for each in for_services.values():
                        each.append(output)
                    if is_ours and self._leaders.has(server):
                        for_leaders.append(output)
                    elif not is_ours:
                        self._accepted.add(link)
                        user = server_user(server, self._domain)
                        for_broker.append(LinkOpened(link, user, _DEVICE, is_server=True))
                    if self._interest is not None:
                        for_interest.append(output)
                        if is_ours is (self._name < server):
                            for_broker.append(DirectLinkOpened(link, server))
                case ServerLinkClosed(link=link, server=server, reason=reason):
                    self._parts.emit(output)
                    for each in for_services.values():
                        each.append(output)
                    if link in self._accepted:
                        self._accepted.remove(link)
                        for_broker.append(LinkClosed(link, reason))
                    elif self._leaders.has(server):
                        for_leaders.append(output)
                    if self._interest is not None:
                        for_interest.append(output)
                        for_broker.append(DirectLinkClosed(link, server))
                case PeerUnreachable(server=server, reason=reason):
                    for_broker.append(LeaderTrouble(server, f"it cannot be reached, {reason}"))
                    self._parts.emit(output)
                case ServerReachable(server=server):
                    for_broker.append(LeaderTrouble(server, ""))
                    self._parts.emit(output)
                case _:
                    self._parts.emit(output)
        self._parts.give(LEADERS, for_leaders)
        self._parts.give(DECENTRALISED_INTEREST, for_interest)
        self._parts.give(BROKER, for_broker)
        for prefix, part in self._services.items():
            self._parts.give(part, for_services[prefix])
        # The windows of the session bound the events, so a link needs no other bound.
        self._parts.give(SERVER_LINKS, [ConsumedOnServerLink(link, count) for link, count in read.items()])

    def route_leaders(self, outputs: list[AboutServers], now: float) -> None:
        """Pass messages to the links, and events and answers to the broker, each as one batch."""
        self._route(outputs)

    def route_interest(self, outputs: list[AboutServers], now: float) -> None:
        """Pass messages to the links, and changed routes and answers to the broker, each as one batch."""
        self._route(outputs)

    def route_owners(self, outputs: list[OwnersOutput], now: float) -> None:
        """Pass messages to the links as one batch, and report the decisions."""
        others: list[AboutServers] = []
        for output in outputs:
            if isinstance(output, CallServed | CallRedirected | CallPostponed):
                if isinstance(output, CallServed) and output.unowned:
                    self._parts.give(BROKER, [UserUnowned(output.unowned, output.session)])
                self._on_decided(output)
            else:
                others.append(output)
        self._route(others)

    def route_handovers(self, outputs: list[HandoversOutput], now: float) -> None:
        """Pass messages to the links, and requests to the broker, each as one batch."""
        self._route(outputs)

    def _route(self, outputs: Sequence[AboutServers | HandoversOutput]) -> None:
        for_links: list[ServerLinksInput] = []
        for_broker: list[BrokerInput] = []
        for_far: list[FarRequest] = []
        for output in outputs:
            if isinstance(output, OfVisitors):
                self._on_visitor_decided(output)
            elif isinstance(output, Output):
                self._parts.emit(output)
            elif isinstance(output, AskServers):
                for_far.append(output)
            elif isinstance(output, ForLinks):
                if _is_far(output):
                    for_far.append(output)
                else:
                    for_links.append(output)
            else:
                for_broker.append(output)
        self._parts.give(SERVER_LINKS, for_links)
        self._to_far(for_far)
        self._parts.give(BROKER, for_broker)

    def use_far_links(self, to_far: Callable[[list[FarRequest]], None]) -> None:
        """Use the links to servers of other domains, whose requests ``to_far`` takes."""
        self._to_far = to_far

    def at_far_links(self, reports: Sequence[FarReport]) -> None:
        """Pass what comes from servers of other domains to those who hand sessions over, and who redirect calls."""
        if self._handovers is not None:
            self._parts.give(HANDOVERS, [without_prefix(each) for each in reports])
        if self._owners is not None:
            self._parts.give(OWNERS, [each for each in reports if isinstance(each, FarServerMet)])

    def give_broker_outputs(
        self,
        for_links: Iterable[SendOnLink | LinkDropped],
        for_leaders: list[ForLeaders],
        for_interest: list[ForInterest],
        for_handovers: list[HandoverOutput],
    ) -> None:
        """Pass the broker's outputs for links of other servers, and those about leaders, interest and handovers."""
        if self._handovers is not None:
            self._parts.give(HANDOVERS, for_handovers)
        if self._interest is not None:
            self._parts.give(DECENTRALISED_INTEREST, for_interest)
        self._parts.give(LEADERS, for_leaders)
        given: list[ServerLinksInput] = []
        for output in for_links:
            match output:
                case SendOnLink(link=link, payload=payload):
                    given.append(SendOnServerLink(link, payload))
                case LinkDropped(link=link, reason=reason):
                    given.append(CloseServerLink(link, reason))
        self._parts.give(SERVER_LINKS, given)

    def consumed(self, done: Mapping[int, int]) -> None:
        """Report how many messages of the links of other servers the broker has processed."""
        reports = [ConsumedOnServerLink(link, count) for link, count in done.items() if link in self._accepted]
        self._parts.give(SERVER_LINKS, reports)


def _is_far(request: ForLinks) -> bool:
    """Return whether a request is one to the links to servers of other domains."""
    match request:
        case SendOnServerLink(link=link) | CloseServerLink(link=link):
            return link >= FIRST_FAR_LINK
        case ConnectServer(server=server) | DisconnectServer(server=server):
            return "/" in server
