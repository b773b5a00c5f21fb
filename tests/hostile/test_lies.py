"""The lies of ``./do hostile lying_server``: some are ignored, others close the link, and one makes a session."""

from __future__ import annotations

from inspect import Parameter, signature
from random import Random
from typing import Any

import msgspec
import pytest

from hostile.lies import GHOST, Honest, Lies
from hostile.lying_server import LyingHandovers
from tests.broker.desk import ALICE
from tests.peers.handover_town import KEY, Town
from wanderbus.broker.state.exported_session import export_session
from wanderbus.broker.state.state import BrokerState
from wanderbus.peers.handover.messages import HANDOVER_PREFIX, MoveReady
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.peers.messages import ServerMessageReceived
from wanderbus.records import Cut

EACH_KIND = 7
"""Quiet lies of all kinds; there are fewer kinds of loud ones."""


@pytest.fixture
def town() -> Town:
    return Town()


@pytest.fixture
def lies(town: Town) -> Lies:
    """Lies of east, which has owned a session like Alice's at south."""
    state = town["south"].broker.state
    exported = export_session(state, ALICE, "default", 2, (Cut(state.next_id, state.next_id),))
    names = tuple(state.sessions[KEY].subscriptions)
    owned = msgspec.structs.replace(exported, source="east")
    return Lies("east", owned, [Honest("south", ALICE, ("phone",), names)], Random(1))


def send(town: Town, server: str, payloads: list[bytes]) -> None:
    """Let a server receive what east says about sessions that move."""
    for payload in payloads:
        if payload[:1] == HANDOVER_PREFIX:
            town[server].hand(ServerMessageReceived(town.link("east", server), "east", payload[1:]))


@pytest.mark.parametrize("server", ["south", "north"])
def test_quiet_lies_close_no_link_and_change_no_session(town: Town, lies: Lies, server: str) -> None:
    before = msgspec.msgpack.encode(town["south"].broker.state.sessions[KEY])
    for number in range(20 * EACH_KIND):
        send(town, server, lies.quiet(server, number + 10))
        town[server].save()
    assert town[server].closed == []
    assert not town["south"].broker.state.awaited.get(KEY)
    assert msgspec.msgpack.encode(town["south"].broker.state.sessions[KEY]) == before
    assert town["south"].has_session


def test_loud_lies_about_sessions_close_the_link(town: Town, lies: Lies) -> None:
    for number in range(3):
        town.open("east", "south")
        send(town, "south", lies.loud("south", number + 10))
    expected = ("a subscription of another session", "an export is that of another session", "does not follow")
    for closed, reason in zip(town["south"].closed, expected, strict=True):
        assert reason in closed.reason


def test_a_session_that_the_liar_owned_is_taken_unless_it_contradicts_itself(town: Town, lies: Lies) -> None:
    north = town["north"]
    for number in range(20 * EACH_KIND):
        town.open("east", "north")
        send(town, "north", lies.quiet("north", number + 10))
        north.save()
        for answer in town.answers("north"):
            if isinstance(answer, MoveReady) and answer.move.user.startswith(GHOST):
                send(town, "north", lies.export(answer.move))
    made = [each for each in north.broker.state.sessions.values() if each.user.startswith(GHOST)]
    assert made
    assert any("contradicts itself" in each.reason for each in north.closed)
    assert all(each.waiting == 2 for each in made)


def test_a_lying_server_takes_what_an_access_server_gives_its_moves() -> None:
    """``./do hostile`` replaces the class in another process, where no type checker sees the call."""
    state = BrokerState("east", 100)
    given: dict[str, Any] = {
        name: parameter.default
        for name, parameter in signature(SessionHandovers).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY
    }
    assert "serves" in given
    assert LyingHandovers(("south",), ("south",), state, "example.org", **given).rows() == {}
