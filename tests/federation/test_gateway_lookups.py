"""Gateways of other domains that are found in the DNS (SPEC S-01; decision 0171)."""

from __future__ import annotations

from itertools import count

from wanderbus.federation.gateway_lookups import FOUND_MAX, PAUSE_S_MAX, PAUSE_S_MIN, GatewayLookups
from wanderbus.federation.member import FederationMember
from wanderbus.federation.messages import (
    AtForeignLinks,
    FederationOutput,
    FindGateways,
    ForeignTrouble,
    ForForeignLinks,
    GatewaysFound,
)
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.machine import SetTimer, TimerFired
from wanderbus.peers.messages import ConnectServer, DisconnectServer, KnowServers, ServerLinkClosed, ServerLinkOpened

TYPES = frozenset({"T"})
FIRST, SECOND = ("b1", ("192.0.2.1", 5900)), ("b2", ("192.0.2.2", 5900))
TIMER = ("lookup", "beta")


def test_a_domain_is_looked_up_again_until_there_is_a_link() -> None:
    lookups = GatewayLookups(["beta"])
    pauses, now = [], 0.0
    outputs = lookups.start(now)
    for _ in range(8):
        asked, timer = outputs
        assert asked == FindGateways("beta")
        assert isinstance(timer, SetTimer)
        pauses.append(timer.at - now)
        now = timer.at
        outputs = lookups.timer_fired("beta", now)
    assert (pauses[0], pauses[-1]) == (PAUSE_S_MIN, PAUSE_S_MAX)
    assert pauses == sorted(pauses)
    lookups.opened("beta", 1)
    assert lookups.timer_fired("beta", now) == []
    assert lookups.closed("beta", 2, now) == []
    assert lookups.closed("beta", 1, now) == [SetTimer(TIMER, now + PAUSE_S_MIN)]
    assert lookups.closed("gamma", 1, now) == lookups.timer_fired("gamma", now) == []


def test_an_answer_counts_if_it_is_new_and_there_is_no_link() -> None:
    lookups = GatewayLookups(["beta"])
    assert lookups.is_unknown("beta")
    assert lookups.found(GatewaysFound("beta", (), "nothing")) is None
    assert lookups.found(GatewaysFound("beta", (FIRST, SECOND))) == dict([FIRST, SECOND])
    assert lookups.found(GatewaysFound("beta", (FIRST, SECOND))) is None
    assert lookups.found(GatewaysFound("beta", (), "silence")) is None, "the former ones stay"
    lookups.opened("beta", 1)
    assert lookups.found(GatewaysFound("beta", (FIRST,))) is None
    lookups.closed("beta", 1, 0.0)
    assert lookups.found(GatewaysFound("beta", (FIRST,))) == dict([FIRST])
    assert lookups.found(GatewaysFound("gamma", (FIRST,))) is None
    assert not lookups.is_unknown("beta")


def test_the_gateways_of_an_answer_are_bounded() -> None:
    many = tuple([(f"b{each}", ("192.0.2.1", each + 1)) for each in range(100)])
    found = GatewayLookups(["beta"]).found(GatewaysFound("beta", many))
    assert found is not None
    assert list(found) == [f"b{each}" for each in range(FOUND_MAX)]


class Member:
    """The only server of a domain, which opens the links to beta, or that has beta open them."""

    def __init__(self, own: str) -> None:
        self.now = 0.0
        parameters = FederationParameters(
            own=own,
            server="a1",
            servers=("a1",),
            gateways=("a1",),
            domains=(ForeignDomain("beta", (), TYPES, TYPES, is_looked_up=True),),
            routing=RoutingSettings(own, {"beta": Neighbour(TYPES, TYPES)}),
        )
        self.member = FederationMember(parameters, lambda subject: (subject,), count(1).__next__, epoch=1)
        self.started = self.member.start(self.now)

    def found(self, *gateways: tuple[str, tuple[str, int]], failure: str = "") -> list[FederationOutput]:
        return self.member.step([GatewaysFound("beta", gateways, failure)], self.now)


def requests(outputs: list[FederationOutput]) -> list[object]:
    return [each.request for each in outputs if isinstance(each, ForForeignLinks)]


def known(*gateways: tuple[str, tuple[str, int]]) -> KnowServers:
    return KnowServers("beta", tuple([(f"beta/{name}", address) for name, address in gateways]))


def test_the_domain_that_opens_links_tries_what_it_has_found() -> None:
    alpha = Member("alpha")
    assert FindGateways("beta") in alpha.started
    assert requests(alpha.found(FIRST, SECOND)) == [known(FIRST, SECOND), ConnectServer("beta/b1")]
    assert requests(alpha.found(FIRST, SECOND)) == []
    assert requests(alpha.found(SECOND)) == [DisconnectServer("beta/b1"), known(SECOND), ConnectServer("beta/b2")]
    alpha.member.step([AtForeignLinks(ServerLinkOpened(1, "beta/b2", is_ours=True))], 1.0)
    assert requests(alpha.found(FIRST)) == []
    closed = alpha.member.step([AtForeignLinks(ServerLinkClosed(1, "beta/b2", "gone"))], 2.0)
    assert SetTimer(TIMER, 2.0 + PAUSE_S_MIN) in closed
    assert FindGateways("beta") in alpha.member.step([TimerFired(TIMER)], 7.0)


def test_the_domain_that_accepts_links_knows_what_it_has_found() -> None:
    omega = Member("omega")
    assert requests(omega.found(FIRST)) == [known(FIRST)]


def test_a_domain_of_which_nothing_was_ever_found_is_reported() -> None:
    alpha = Member("alpha")
    (trouble,) = [each for each in alpha.found(failure="silence") if isinstance(each, ForeignTrouble)]
    assert trouble == ForeignTrouble("beta", "its gateways are not found in the DNS: silence")
    alpha.found(FIRST)
    assert not [each for each in alpha.found(failure="silence") if isinstance(each, ForeignTrouble)]
