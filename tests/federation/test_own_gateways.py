"""Tests of the gateways of a domain as one of them sees them (SPEC M-03; decision 0166)."""

from __future__ import annotations

import pytest

from wanderbus.federation.own_gateways import OwnGateways

NAMES = ("a1", "a2", "a3")


def test_the_turn_of_the_first_gateway_that_can_be_reached() -> None:
    first, second = OwnGateways(NAMES, "a1"), OwnGateways(NAMES, "a2")
    for server in ("a1", "a2", "a3", "s4"):
        first.up(server)
        second.up(server)
    assert (first.is_in_turn, second.is_in_turn) == (True, False)
    assert (first.down("a2"), second.down("a3"), second.down("a1")) == (False, False, True)
    assert second.is_in_turn


@pytest.mark.parametrize(("server", "may_have_acted"), [("s4", False), ("a3", True)])
def test_another_gateway_may_have_acted_while_it_was_out_of_sight(server: str, may_have_acted: bool) -> None:
    gateways = OwnGateways(NAMES, "a1")
    known = [gateways.may_have_acted]
    for each in ("a2", "a3"):
        gateways.begin_anew()
        known.append(gateways.may_have_acted)
        gateways.up(each)
    assert known == [True, True, True]
    gateways.begin_anew()
    gateways.down(server)
    gateways.up(server)
    assert gateways.may_have_acted is may_have_acted


def test_an_only_gateway_knows_all_itself() -> None:
    assert not OwnGateways(["a1"], "a1").may_have_acted
