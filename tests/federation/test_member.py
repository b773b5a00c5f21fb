"""A server's part in the federation: reports of gateways about lost events (SPEC M-01)."""

from __future__ import annotations

import pytest

from wanderbus.broker.servers.foreign_messages import DomainEventsLost
from wanderbus.federation import circuit_messages
from wanderbus.federation.circuit_messages import LossReported
from wanderbus.federation.member import FederationMember
from wanderbus.federation.messages import ForeignEventsLost
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.routing_messages import RoutingSettings
from wanderbus.peers.messages import ServerLinkOpened, ServerMessageReceived
from wanderbus.subscription import EVERY_SUBJECT


def member() -> FederationMember:
    """A server that is no gateway; ``b1`` is one, and ``b3`` is not."""
    parameters = FederationParameters(
        own="beta",
        server="b2",
        servers=("b1", "b2", "b3"),
        gateways=("b1",),
        domains=(ForeignDomain("alpha", ("a1",), frozenset({"T"})), ForeignDomain("gamma", ("g1",))),
        routing=RoutingSettings("beta", {}, "multicast"),
    )
    return FederationMember(parameters, lambda subject: (subject, "Parent"), iter(range(1_000)).__next__, epoch=1)


def losses_after(server: str, domain: str, *, is_ours: bool = False) -> list[ForeignEventsLost | DomainEventsLost]:
    """Outputs that follow from the report of a server."""
    found = member()
    payload = circuit_messages.encode(LossReported(domain, "a1", 3, "log_keep\nfull"))[1:]
    opened, message = ServerLinkOpened(7, server, is_ours), ServerMessageReceived(7, server, payload)
    return [
        each for each in found.step([opened, message], 1.0) if isinstance(each, ForeignEventsLost | DomainEventsLost)
    ]


def test_the_loss_that_a_gateway_reports_is_a_gap_for_the_subscriptions_that_may_match() -> None:
    reported, lost = losses_after("b1", "alpha")
    assert isinstance(reported, ForeignEventsLost)
    assert (reported.domain, reported.server, reported.count) == ("alpha", "a1", 3)
    assert "\n" not in reported.reason
    assert lost == DomainEventsLost("alpha", frozenset({"T", "Parent", EVERY_SUBJECT}))


@pytest.mark.parametrize(("server", "domain"), [("b3", "alpha"), ("b1", "gamma"), ("b1", "delta")])
def test_no_gap_for_the_loss_of_a_domain_that_sends_nothing_or_that_no_gateway_reports(
    server: str, domain: str
) -> None:
    assert losses_after(server, domain) == []
