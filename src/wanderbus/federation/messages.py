"""Inputs and outputs of :class:`~wanderbus.federation.member.FederationMember`."""

from __future__ import annotations

from wanderbus.broker.messages import LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.servers.foreign_messages import DomainEventsLost, ForeignInterestEffective
from wanderbus.broker.signals import ForFederation
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import FarReport, FarRequest
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
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

    request: ConnectServer | DisconnectServer | SendOnServerLink | CloseServerLink | ConsumedOnServerLink


class AtFarLinks(Output, frozen=True):
    """A report of the links to servers of other domains, for those who hand sessions over."""

    report: FarReport


class ForFarLinks(Input, frozen=True):
    """A request to these links."""

    request: FarRequest


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
    | SendOnServerLink
    | CloseServerLink
    | ForForeignLinks
    | AtFarLinks
    | ForeignEventsLost
    | ForeignTrouble
    | SetTimer
    | CancelTimer
)
"""Outputs: inputs of the broker here, requests to both kinds of links, and reports."""
