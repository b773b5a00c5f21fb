"""Outputs of the links that gateways of a domain lend each other (decision 0166)."""

from __future__ import annotations

import msgspec

from wanderbus.federation.circuit_messages import ForeignLinkAsked, SharedLinkMessage
from wanderbus.federation.messages import ForeignLinkReport
from wanderbus.machine import Output
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    KnowServers,
    SendOnServerLink,
)

LinkRequest = SendOnServerLink | CloseServerLink | ConsumedOnServerLink
LinksRequest = LinkRequest | ConnectServer | DisconnectServer | KnowServers


class ByOpener(Output, frozen=True):
    """Let another gateway of the own domain open a link, and lend it, or open it no longer (decision 0172)."""

    gateway: str
    request: ConnectServer | DisconnectServer


class AtGateway(Output, frozen=True):
    """A report for the gateway here, which uses this link."""

    report: ForeignLinkReport


class OnPeerLink(Output, frozen=True):
    """Send a message about a link on a link between servers of the own domain."""

    link: int
    message: SharedLinkMessage | ForeignLinkAsked


class ForOwnLink(Output, frozen=True):
    """A request to the links that this gateway has."""

    request: LinksRequest


class LentPlace(msgspec.Struct, frozen=True):
    """A link of another gateway: the link between servers on which it is spoken of, and its number there."""

    peer_link: int
    number: int


SharedOutput = AtGateway | OnPeerLink | ForOwnLink
"""All outputs."""
