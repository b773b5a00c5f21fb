"""Events pass a relay between two clients behind NATs of which one moves: each comes once, in order (SPEC I-01, I-07).

Publisher and subscriber have the same private address, behind different routers.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest

from harness.internet import PUBLIC
from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import ALICE, BOB, EAST, NORTH, RELAY, SERVER, SOUTH, WEST
from tests.interop.nat.programs import Layout, refused, relayed_datagrams

STEADY_S = 0.4
HEAL_S_MAX = 22.0
"""Longest pause: a busy machine may lose the first attempts of an agent, which come at longer and longer intervals."""

over_either = pytest.mark.parametrize("transport", ["UDP", "TCP"])


class Move(NamedTuple):
    """The first places of publisher and subscriber, the one that moves, and its destination."""

    alice: str
    bob: str
    who: str
    to: str


def move(scenario: str, *where: str) -> object:
    return pytest.param(Move(*where), marks=pytest.mark.interop(peer="NAT", scenario=scenario), id=scenario)


@over_either
@pytest.mark.parametrize(
    "given",
    [
        move("the subscriber moves from NAT to NAT", NORTH, SOUTH, BOB, NORTH),
        move("the subscriber moves from NAT to symmetric NAT", NORTH, SOUTH, BOB, EAST),
        move("the subscriber moves from symmetric NAT to symmetric NAT", EAST, WEST, BOB, EAST),
        move("the subscriber moves into NAT", NORTH, PUBLIC, BOB, SOUTH),
        move("the subscriber moves out of NAT", NORTH, SOUTH, BOB, PUBLIC),
        move("the publisher moves from NAT to symmetric NAT", NORTH, SOUTH, ALICE, WEST),
        move("the publisher moves into NAT", PUBLIC, PUBLIC, ALICE, EAST),
    ],
)
def test_nothing_is_lost(set_stage: SetStage, given: Move, transport: str) -> None:
    with set_stage(transport=transport, alice=given.alice, bob=given.bob) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(given.who, given.to)) < HEAL_S_MAX
        stage.check(stage.hold())
        if PUBLIC not in (given.alice, given.bob):
            # Whoever comes from where none was needed tries without the relay first.
            assert refused(stage.internet, SERVER) == 0


@pytest.mark.parametrize("transport", ["UDP", "TCP", "UDP, SIP over TCP", "TCP, SIP over UDP"])
@pytest.mark.interop(peer="NAT", scenario="the relay is on a host of its own")
def test_all_passes_a_relay_elsewhere(set_stage: SetStage, transport: str) -> None:
    with set_stage(layout=Layout.APART, transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(BOB, EAST)) < HEAL_S_MAX
        published = stage.hold()
        stage.check(published)
        assert refused(stage.internet, SERVER) == refused(stage.internet, RELAY) == 0
        relay = stage.programs[RELAY]
        relay.end()
        assert relayed_datagrams(relay) >= 2 * published, "each comes from the publisher, and goes to the subscriber"


@over_either
@pytest.mark.interop(peer="NAT", scenario="both move at once")
def test_both_move_at_once(set_stage: SetStage, transport: str) -> None:
    with set_stage(transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        stage.move(ALICE, WEST)
        assert stage.healed_s(stage.move(BOB, EAST)) < HEAL_S_MAX
        stage.check(stage.hold())


@over_either
@pytest.mark.interop(peer="NAT", scenario="the subscriber moves twelve times from NAT to NAT")
def test_no_move_takes_room_from_the_next(set_stage: SetStage, transport: str) -> None:
    """The connection that a moving device leaves behind is never closed from its side, and must not count as another
    one.
    """
    with set_stage(transport=transport) as stage:
        stage.flow()
        for place in (NORTH, SOUTH) * 6:
            time.sleep(STEADY_S)
            assert stage.healed_s(stage.move(BOB, place)) < HEAL_S_MAX
        stage.check(stage.hold())
