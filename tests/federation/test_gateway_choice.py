"""Tests of the choice of gateways that keep the link between two domains (decision 0161)."""

from __future__ import annotations

from wanderbus.federation.gateway_choice import SWITCH_S, GatewayChoice, domain_of_link, epoch_of, link_name
from wanderbus.federation.shared_outputs import ByOpener
from wanderbus.machine import CancelTimer, SetTimer
from wanderbus.peers.messages import ConnectServer, DisconnectServer

TIMER = ("connect", "beta")


def test_the_name_of_a_gateway_tells_its_domain() -> None:
    assert domain_of_link(link_name("beta.example", "b1")) == "beta.example"


def test_the_first_gateway_of_a_domain_is_tried_first() -> None:
    choice = GatewayChoice("beta", ["beta/b1", "beta/b2"])
    assert choice.start(10.0) == [ConnectServer("beta/b1"), SetTimer(TIMER, 10.0 + SWITCH_S)]
    assert choice.start(11.0) == []


def test_a_gateway_that_stays_away_gives_way_to_the_next_one() -> None:
    choice = GatewayChoice("beta", ["beta/b1", "beta/b2"])
    choice.start(0.0)
    second = choice.timer_fired(3.0)
    assert second == [DisconnectServer("beta/b1"), ConnectServer("beta/b2"), SetTimer(TIMER, 3.0 + SWITCH_S)]
    assert choice.timer_fired(6.0)[1] == ConnectServer("beta/b1")


def test_the_only_gateway_of_a_domain_is_never_given_up() -> None:
    choice = GatewayChoice("beta", ["beta/b1"])
    choice.start(0.0)
    assert DisconnectServer("beta/b1") not in choice.timer_fired(3.0)


def test_a_gateway_that_was_reached_is_kept() -> None:
    choice = GatewayChoice("beta", ["beta/b1", "beta/b2"])
    choice.start(0.0)
    assert choice.opened("beta/b1") == [CancelTimer(TIMER)]
    assert choice.timer_fired(3.0) == []
    assert choice.closed("beta/b1", 5.0) == [SetTimer(TIMER, 5.0 + SWITCH_S)]
    assert choice.timer_fired(8.0)[1] == ConnectServer("beta/b2")


def test_another_gateway_here_tries_a_domain_that_this_one_cannot_reach() -> None:
    """This one gives its own attempt up first, and the other one its own before this one tries again."""
    choice = GatewayChoice("beta", ["beta/b1"], ["a2", "a3"])
    assert choice.start(0.0)[0] == ConnectServer("beta/b1")
    third = ByOpener("a3", ConnectServer("beta/b1"))
    reachable = {"a1", "a3"}
    assert choice.timer_fired(3.0, reachable) == [DisconnectServer("beta/b1"), third, SetTimer(TIMER, 3.0 + SWITCH_S)]
    assert choice.opened("beta/b1") == [CancelTimer(TIMER)]
    assert choice.timer_fired(6.0, reachable) == []
    assert choice.closed("beta/b1", 8.0) == [SetTimer(TIMER, 8.0 + SWITCH_S)]
    given_up = ByOpener("a3", DisconnectServer("beta/b1"))
    assert choice.timer_fired(11.0, reachable)[:2] == [given_up, ConnectServer("beta/b1")]
    choice.timer_fired(14.0, reachable)
    assert choice.stop() == [given_up, CancelTimer(TIMER)]
    assert (choice.has_several(reachable), choice.has_several({"a1"})) == (True, False)


def test_other_gateways_of_a_domain_are_tried_once_they_are_known() -> None:
    choice = GatewayChoice("beta", [])
    assert choice.start(0.0) == []
    assert choice.replace(["beta/b1", "beta/b2"]) == []
    assert choice.start(0.0) == [ConnectServer("beta/b1"), SetTimer(TIMER, SWITCH_S)]
    assert choice.replace(["beta/b3", "beta/b4"]) == [DisconnectServer("beta/b1"), CancelTimer(TIMER)]
    assert choice.start(1.0)[0] == ConnectServer("beta/b3")
    choice.opened("beta/b3")
    assert choice.replace(["beta/b4"]) == [], "a link that is open stays"
    assert choice.start(2.0) == []
    choice.closed("beta/b3", 3.0)
    assert choice.timer_fired(6.0)[:2] == [DisconnectServer("beta/b3"), ConnectServer("beta/b4")]


def test_links_of_other_gateways_change_nothing() -> None:
    choice = GatewayChoice("beta", ["beta/b1", "beta/b2"])
    choice.start(0.0)
    assert choice.opened("beta/b2") == []
    assert choice.closed("beta/b2", 1.0) == []


def test_a_gateway_that_is_not_in_turn_keeps_no_link() -> None:
    choice = GatewayChoice("beta", ["beta/b1"])
    assert choice.stop() == []
    choice.start(0.0)
    assert choice.stop() == [DisconnectServer("beta/b1"), CancelTimer(TIMER)]
    assert choice.timer_fired(3.0) == []
    assert choice.start(4.0)[0] == ConnectServer("beta/b1")


def test_two_gateways_of_a_domain_have_no_epoch_in_common() -> None:
    lives = {(life, place): epoch_of(life, place) for life in range(1, 20) for place in range(3)}
    assert len({*lives.values()}) == len(lives)
    assert epoch_of(2, 1) < epoch_of(3, 0)
    for known in range(epoch_of(1, 0), epoch_of(4, 0)):
        first, second = epoch_of(1, 0, known), epoch_of(1, 1, known)
        assert min(first, second) > known
        assert first != second
