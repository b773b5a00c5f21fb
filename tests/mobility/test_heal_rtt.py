"""Healing time of a session, in round trips of network time (DESIGN 6.1; the goal ``heal_rtt`` is 1.0).

The clock starts when the new address can be used, and stops when the media are CONNECTED again: at the peer, which
heals half a round trip after the re-INVITE was sent, and at the side that moved, which heals with the answer. Every
datagram takes exactly as long as every other, none is lost, and the peer authenticates the caller.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mobility.world import Phone, Talk, established
from wanderbus.mobility.messages import SetMediaStatus
from wanderbus.mobility.session.session import RemoteMediaStatus

DELAY_S = 0.05
HEAL_RTT_MAX = 1.0


@pytest.fixture
def steady() -> Talk:
    """Two parties in a session, where every datagram takes DELAY_S."""
    talk = established(delay_s=DELAY_S)
    talk[0].jitter = 0.0
    talk[0].run(1.0)
    for phone in talk[1:]:
        phone.give(SetMediaStatus("call", RemoteMediaStatus.DISCONNECTED))
    return talk


def healed(*phones: Phone) -> Callable[[], bool]:
    return lambda: all(phone.session().media_status is RemoteMediaStatus.CONNECTED for phone in phones)


def heal_rtt(talk: Talk, mover: Phone, *healing: Phone) -> float:
    """Move ``mover``; return the round trips until the media of all ``healing`` are CONNECTED."""
    mover.move("10.0.3.1")
    return talk[0].run_until(healed(*healing)) / (2 * DELAY_S)


@pytest.mark.parametrize("caller_moves", [True, False])
def test_heal_rtt_at_the_peer(steady: Talk, caller_moves: bool, record_property: Callable[[str, object], None]) -> None:
    _, alice, broker = steady
    mover, peer = (alice, broker) if caller_moves else (broker, alice)
    measured = heal_rtt(steady, mover, peer)
    record_property("heal_rtt", measured)
    assert measured == pytest.approx(0.5)
    assert measured <= HEAL_RTT_MAX


def test_heal_rtt_on_both_sides(steady: Talk, record_property: Callable[[str, object], None]) -> None:
    _, alice, broker = steady
    measured = heal_rtt(steady, alice, alice, broker)
    record_property("heal_rtt_both", measured)
    assert measured == pytest.approx(1.0)


def test_register_runs_beside_and_costs_nothing(steady: Talk) -> None:
    """SPEC X12: with the registrar unreachable the session heals just as fast."""
    world, alice, broker = steady
    world.server.crash()
    assert heal_rtt(steady, alice, alice, broker) == pytest.approx(1.0)


def test_register_and_reinvite_leave_at_the_same_moment(steady: Talk) -> None:
    world, alice, _ = steady
    world.trace.clear()
    alice.move("10.0.3.1")
    assert [(sent.what, sent.at) for sent in world.trace] == [("REGISTER", world.now), ("INVITE", world.now)]


def test_the_first_move_after_the_peers_nonce_grew_old_costs_one_more_round_trip(steady: Talk) -> None:
    """RFC 7616 3.3: the nonce sent ahead is refused as stale after 300 s, once; the next move has a fresh one."""
    world, alice, broker = steady
    world.run(301.0)
    assert heal_rtt(steady, alice, broker) == pytest.approx(1.5)
    world.run(1.0)
    broker.give(SetMediaStatus("call", RemoteMediaStatus.DISCONNECTED))
    alice.move("10.0.3.2")
    assert world.run_until(healed(broker)) / (2 * DELAY_S) == pytest.approx(0.5)
