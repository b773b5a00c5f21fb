"""Reports of a gateway about a foreign domain without a link, in its log and in its status."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from wanderbus.federation.domestic_interest import ReceivedTypes
from wanderbus.federation.gateway import Gateway
from wanderbus.federation.gateway_choice import SWITCH_S
from wanderbus.federation.messages import ForeignTrouble
from wanderbus.federation.parameters import ForeignDomain
from wanderbus.federation.reports.foreign_troubles import LINK_HINT, UNREACHABLE_EACH_S
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.peers.messages import PeerUnreachable, ServerLinkClosed, ServerLinkOpened, ServerReachable

TYPES = frozenset({"T"})
SILENT = "the other side does not answer"


def gateway(own: str, other: str, *theirs: str, name: str = "a1", ours: Sequence[str] = ("a1",)) -> Gateway:
    routing = RoutingSettings(own, {other: Neighbour(TYPES, TYPES)})
    domain = ForeignDomain(other, theirs, TYPES, TYPES)
    types = ReceivedTypes(TYPES, lambda subject: [subject])
    return Gateway(own, name, ours, ours, [domain], types, routing, count(1).__next__, 1)


def trouble(made: Gateway, domain: str) -> object:
    return made.rows()[domain]["trouble"]


def test_a_link_that_fails_is_a_trouble_until_there_is_one_again() -> None:
    made = gateway("alpha", "beta", "b1")
    made.start(0.0)
    made.at_foreign_links(ServerLinkOpened(1, "beta/b1", True), 1.0)
    assert trouble(made, "beta") == ""
    silent = PeerUnreachable("beta/b1", "127.0.0.2:5900 has acknowledged nothing for 0.8 s")
    assert ForeignTrouble("beta", silent.reason) in made.at_foreign_links(silent, 2.0)
    made.at_foreign_links(ServerLinkClosed(1, "beta/b1", SILENT), 5.0)
    assert trouble(made, "beta") == f"its last link was closed: {SILENT}"
    reachable = made.at_foreign_links(ServerLinkOpened(2, "beta/b1", True), 9.0)
    assert ForeignTrouble("beta", "") in reachable
    assert trouble(made, "beta") == ""


def test_a_short_silence_on_a_link_is_no_trouble_any_more_once_it_is_over() -> None:
    made = gateway("alpha", "beta", "b1")
    made.start(0.0)
    made.at_foreign_links(ServerLinkOpened(1, "beta/b1", True), 1.0)
    made.at_foreign_links(PeerUnreachable("beta/b1", "silent"), 2.0)
    assert ForeignTrouble("beta", "") in made.at_foreign_links(ServerReachable("beta/b1", 0.5), 2.5)


@pytest.mark.parametrize("theirs", [["b1"], ["b1", "b2"]])
def test_gateways_that_never_answered_are_reported_once(theirs: list[str]) -> None:
    made = gateway("alpha", "beta", *theirs)
    made.start(0.0)
    said = [made.timer_fired(("connect", "beta"), SWITCH_S * turn) for turn in range(1, 5)]
    reports = [each.reason for outputs in said for each in outputs if isinstance(each, ForeignTrouble)]
    # The links themselves report about an only gateway.
    assert reports == ([f"none of its gateways has answered yet; {LINK_HINT}"] if len(theirs) > 1 else [])


def test_a_domain_that_stays_away_is_reported_once_in_ten_minutes() -> None:
    made = gateway("alpha", "beta", "b1", "b2")
    made.start(0.0)
    said = []
    for turn in range(1, 500):
        reason = f"b{turn % 2} has not answered for {turn} s"
        outputs = made.at_foreign_links(PeerUnreachable(f"beta/b{turn % 2}", reason), 3.0 * turn)
        said += [each.reason for each in outputs if isinstance(each, ForeignTrouble)]
        assert trouble(made, "beta") == reason
    assert len(said) == 1 + int(3.0 * 498 / UNREACHABLE_EACH_S)
    made.at_foreign_links(ServerLinkOpened(1, "beta/b1", True), 1_500.0)
    made.at_foreign_links(ServerLinkClosed(1, "beta/b1", SILENT), 1_501.0)
    away = PeerUnreachable("beta/b1", "away again")
    assert ForeignTrouble("beta", "away again") in made.at_foreign_links(away, 1_502.0)


def test_the_domain_that_opens_no_link_says_who_does() -> None:
    made = gateway("beta", "alpha", "a9")
    made.start(0.0)
    assert trouble(made, "alpha") == f"alpha opens the link, and has not done so; {LINK_HINT}"
    made.at_foreign_links(ServerLinkOpened(1, "alpha/a9", False), 1.0)
    assert trouble(made, "alpha") == ""
    made.at_foreign_links(ServerLinkClosed(1, "alpha/a9", SILENT), 2.0)
    assert trouble(made, "alpha") == f"its last link was closed: {SILENT}"


def test_a_gateway_that_stands_by_has_no_trouble() -> None:
    made = gateway("beta", "alpha", "a9", name="a2", ours=["a1", "a2"])
    made.start(0.0)
    made.server_up("a1", 0.5)
    assert trouble(made, "alpha") == ""
    made.at_foreign_links(ServerLinkOpened(1, "alpha/a9", False), 1.0)
    made.at_foreign_links(ServerLinkClosed(1, "alpha/a9", "another gateway has its turn"), 2.0)
    assert trouble(made, "alpha") == ""
