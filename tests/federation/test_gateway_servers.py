"""Names of servers that gateways tell each other, for sessions that move (SPEC L-01)."""

from __future__ import annotations

from itertools import count

from wanderbus.federation.domestic_interest import ReceivedTypes
from wanderbus.federation.gateway import Gateway
from wanderbus.federation.messages import ForForeignLinks
from wanderbus.federation.parameters import ForeignDomain
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.federation.wire import ServersNamed, ServersWanted, decode, encode
from wanderbus.peers.messages import SendOnServerLink, ServerLinkOpened, ServerMessageReceived

TYPES = frozenset({"T"})
LINK = 7


def test_l01_a_session_goes_to_a_server_that_serves_devices_and_can_be_reached() -> None:
    routing = RoutingSettings("alpha", {"beta": Neighbour(TYPES, TYPES)})
    domain = ForeignDomain("beta", ("b1",), TYPES, TYPES)
    types = ReceivedTypes(TYPES, lambda subject: [subject])
    servers = ("a1", "a2", "a3", "a4")
    gateway = Gateway(
        "alpha", "a1", ("a1",), servers, [domain], types, routing, count(1).__next__, 1, access=("a3", "a4")
    )
    gateway.start(0.0)
    for each in ("a2", "a3"):
        gateway.server_up(each, 0.0)
    gateway.at_foreign_links(ServerLinkOpened(LINK, "beta/b1", is_ours=True), 1.0)
    for number in range(20):
        asked = encode(ServersWanted("b1", f"sip:user{number}@beta"))
        outputs = gateway.at_foreign_links(ServerMessageReceived(LINK, "beta/b1", asked), 2.0)
        said = [decode(each.request.payload) for each in outputs if is_sent(each)]  # type: ignore[union-attr]
        assert said == [ServersNamed("b1", f"sip:user{number}@beta", servers, "a3")]


def is_sent(output: object) -> bool:
    return isinstance(output, ForForeignLinks) and isinstance(output.request, SendOnServerLink)
