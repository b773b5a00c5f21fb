"""Parts of a server of a domain, with what they take and emit; their names are the scopes of their timers."""

from __future__ import annotations

from typing import Final

from wanderbus.broker.signals import BrokerInput, BrokerOutput, ForInterest, ForLeaders, OfServers
from wanderbus.composition import Part
from wanderbus.machine import DatagramReceived, Output, TimerFired
from wanderbus.peers.handover.session_handovers import HandoversInput, HandoversOutput
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerLinksInput,
    ServerLinksOutput,
    ServerMessageReceived,
)
from wanderbus.peers.owner_messages import OwnersInput, OwnersOutput

LeadersInput = ForLeaders | ServerLinkOpened | ServerLinkClosed | ServerMessageReceived | TimerFired
InterestInput = (
    ForInterest | ServerLinkOpened | ServerLinkClosed | ServerMessageReceived | DatagramReceived | TimerFired
)

AboutServers = OfServers | ConnectServer | SendOnServerLink | CloseServerLink | Output
"""Outputs of the parts that use the links: inputs of the broker and of the links, and outputs of the access server."""

BROKER: Final = Part[BrokerInput, BrokerOutput]("broker")
SERVER_LINKS: Final = Part[ServerLinksInput, ServerLinksOutput]("servers")
LEADERS: Final = Part[LeadersInput, AboutServers]("leaders")
DECENTRALISED_INTEREST: Final = Part[InterestInput, AboutServers]("decentralised_interest")
OWNERS: Final = Part[OwnersInput, OwnersOutput]("owners")
HANDOVERS: Final = Part[HandoversInput, HandoversOutput]("handovers")

SERVER_SOCKET: Final = SERVER_LINKS.name
"""Socket of the links to other servers."""

MULTICAST_SOCKET: Final = "multicast"
"""Socket of the domain's multicast group, for the interest in decentralised channels."""
