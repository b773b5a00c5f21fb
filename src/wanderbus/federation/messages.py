"""Inputs and outputs of :class:`~wanderbus.federation.member.FederationMember`."""

from __future__ import annotations

from collections.abc import Mapping

from wanderbus.broker.messages import LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.servers.foreign_messages import DomainEventsLost, ForeignInterestEffective, OrderedDomains
from wanderbus.broker.signals import ForFederation
from wanderbus.federation.parameters import FederationParameters
from wanderbus.machine import Address, CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import FarDomain, FarReport, FarRequest
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    KnowServers,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
    ServerReachable,
)

ForeignLinkReport = ServerLinkOpened | ServerLinkClosed | ServerMessageReceived | PeerUnreachable | ServerReachable
"""Reports of the links to gateways of other domains."""


class AtForeignLinks(Input, frozen=True):
    """A report of the links to gateways of other domains, whose names are ``DOMAIN/GATEWAY``."""

    report: ForeignLinkReport


class ForForeignLinks(Output, frozen=True):
    """A request to these links."""

    request: ConnectServer | DisconnectServer | SendOnServerLink | CloseServerLink | ConsumedOnServerLink | KnowServers


class FindGateways(Output, frozen=True):
    """Look up the gateways of a domain in the DNS: :class:`GatewaysFound` answers."""

    domain: str


class GatewaysFound(Input, frozen=True):
    """Answer of the DNS: the gateways of a domain by their names, the first to be tried first; or the failure."""

    domain: str
    gateways: tuple[tuple[str, Address], ...] = ()
    failure: str = ""


class AtFarLinks(Output, frozen=True):
    """A report of the links to servers of other domains, for those who hand sessions over."""

    report: FarReport


class ForFarLinks(Input, frozen=True):
    """A request to these links."""

    request: FarRequest


class FederationChanged(Input, frozen=True):
    """The file of the federation has changed: everything of this server's part in it begins again with these.

    ``links`` are those of a gateway to other domains, in place of the present ones. ``epoch`` is as that of a start.
    """

    parameters: FederationParameters
    foreign: Mapping[str, FarDomain]
    links: ServerLinks | None
    epoch: int


class ForeignEventsLost(Output, frozen=True):
    """Events of a foreign domain are lost, ``count`` since the last report, the last of them at its ``server``.

    ``reason`` is the bound there. Users here may have subscribed to them.
    """

    domain: str
    server: str
    count: int
    reason: str


class ForeignTrouble(Output, frozen=True):
    """A foreign domain does not work as it should; ``reason`` is a text for people, "" when it works again."""

    domain: str
    reason: str


FederationInput = (
    ForFederation
    | SendOnLink
    | LinkDropped
    | ServerLinkOpened
    | ServerLinkClosed
    | ServerMessageReceived
    | AtForeignLinks
    | ForFarLinks
    | GatewaysFound
    | ClockRead
    | TimerFired
)
"""Inputs: outputs of the broker here, reports of the links to the own domain's servers, and of those to others."""

FederationOutput = (
    LinkOpened
    | LinkClosed
    | MessageArrived
    | DomainEventsLost
    | ForeignInterestEffective
    | OrderedDomains
    | SendOnServerLink
    | CloseServerLink
    | ForForeignLinks
    | AtFarLinks
    | ForeignEventsLost
    | ForeignTrouble
    | FindGateways
    | SetTimer
    | CancelTimer
)
"""Outputs: inputs of the broker here, requests to both kinds of links, and reports."""
