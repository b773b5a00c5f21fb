"""Moves, failures and ends that fall into each other (SPEC D-10 to D-12, X12, X13)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted
from tests.mobility.world import Talk, World, media_at, settled
from wanderbus.mobility.messages import (
    AddressChanged,
    SessionFailed,
    SessionRemoved,
    SetMediaStatus,
    TerminateSession,
    UpdateFailed,
    UpdateSession,
)
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPCommunicationStatus


def test_a_move_during_bye_repeats_it_from_the_new_address(talk: Talk) -> None:
    """The answer to the first one is lost with the address; without a second the end would take 32 s."""
    world, alice, broker = talk
    alice.give(TerminateSession("call"))
    alice.move("10.0.3.1")
    took_s = world.run_until(lambda: not alice.agent.sessions and not broker.agent.sessions)
    assert took_s < 0.1
    assert len(alice.all_of(SessionRemoved)) == len(broker.all_of(SessionRemoved)) == 1


def test_a_move_during_bye_ends_at_a_peer_that_knows_no_rport(world: World) -> None:
    """It answers to the sent-by, so a copy of the first BYE would be answered to where we were."""
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.accepts(proxy.got("INVITE")[0])
    alice.give(TerminateSession("call"))
    alice.move("10.0.3.1")
    world.run(0.1)
    vias = [bye.request.via.host for bye in proxy.got("BYE")]
    assert vias == ["10.0.2.1", "10.0.3.1"]
    assert proxy.got("BYE")[1].request.cseq.number > proxy.got("BYE")[0].request.cseq.number


def test_the_peer_moves_while_our_bye_is_on_its_way(talk: Talk) -> None:
    """Its re-INVITE finds the session gone (481), which ends it there."""
    world, alice, broker = talk
    broker.move("10.0.4.1")
    alice.give(TerminateSession("call"))
    world.run(5.0)
    assert broker.agent.sessions == {}
    world.run(40.0)
    assert alice.agent.sessions == {}


def test_both_end_and_both_move(talk: Talk) -> None:
    world, alice, broker = talk
    for phone, host in ((alice, "10.0.3.1"), (broker, "10.0.4.1")):
        phone.give(TerminateSession("call"))
        phone.move(host)
    world.run(40.0)
    assert alice.agent.sessions == broker.agent.sessions == {}


def test_bye_during_a_reinvite_of_ours(talk: Talk) -> None:
    world, alice, broker = talk
    alice.move("10.0.3.1")
    alice.give(TerminateSession("call"))
    world.run(1.0)
    assert alice.agent.sessions == broker.agent.sessions == {}
    assert not alice.all_of(UpdateFailed)


def test_the_peer_ends_the_session_during_our_reinvite(talk: Talk) -> None:
    world, alice, broker = talk
    alice.give(UpdateSession("call", media_at(alice.address, 7)))
    broker.give(TerminateSession("call"))
    world.run(1.0)
    assert alice.agent.sessions == broker.agent.sessions == {}
    assert [len(alice.all_of(SessionRemoved)), len(alice.all_of(UpdateFailed))] in ([1, 0], [0, 1])


def test_a_move_during_a_cancelled_invite_comes_to_an_end(world: World) -> None:
    alice, bob = world.phone("alice", "10.0.2.1"), world.phone("bob", "10.0.1.1")
    bob.answers = False
    world.run(1.0)
    alice.call("bob")
    world.run(0.5)
    alice.give(TerminateSession("call"))
    alice.move("10.0.3.1")
    world.run(40.0)
    assert alice.agent.sessions == bob.agent.sessions == {}
    assert not alice.all_of(SessionFailed)


def test_three_moves_on_each_side_within_a_second(talk: Talk) -> None:
    world, alice, broker = talk
    for number in range(3):
        alice.move(f"10.0.3.{number}")
        world.run(0.15)
        broker.move(f"10.0.4.{number}")
        world.run(0.15)
    world.run_until(lambda: settled(alice, broker), 10.0)
    world.run(60.0)
    assert settled(alice, broker)
    assert not alice.all_of(UpdateFailed)
    assert not broker.all_of(UpdateFailed)


def test_d10_recovery_with_an_unchanged_address_updates_the_session(talk: Talk) -> None:
    """A cable is unplugged for ten seconds; the application notices, and requests the update when it is back."""
    world, alice, broker = talk
    world.loses = lambda sent: alice.address in (sent.source, sent.destination)
    alice.give(SetMediaStatus("call", RemoteMediaStatus.DISCONNECTED))
    world.run(10.0)
    assert alice.session().communication is SIPCommunicationStatus.CONNECTED
    world.loses = lambda sent: False
    registers = len(world.sent("REGISTER", alice))
    alice.give(AddressChanged(alice.address), UpdateSession("call", media_at(alice.address)))
    assert world.run_until(lambda: alice.session().media_status is RemoteMediaStatus.CONNECTED) < 0.1
    assert settled(alice, broker)
    assert len(world.sent("REGISTER", alice)) == registers + 1


@pytest.mark.parametrize("down_s", [1.0, 5.0])
def test_d12_the_peer_is_down_and_comes_back_where_it_was(talk: Talk, down_s: float) -> None:
    world, alice, broker = talk
    snapshot = broker.session().snapshot()
    broker.crash()
    alice.move("10.0.3.1")
    world.run(down_s)
    broker.restart(snapshot)
    world.run_until(lambda: settled(alice, broker), 5.0)
    assert not alice.all_of(UpdateFailed)
