"""UPDATE: an offer that needs no ACK, and a refresh that needs no offer (RFC 3311)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted, asking, sdp
from tests.mobility.world import Phone, Talk, World, media_at, settled
from wanderbus.mobility.messages import (
    AcceptOffer,
    Refuse,
    SessionEstablished,
    SessionOffered,
    SessionStateChanged,
    UpdateFailed,
    UpdateSession,
)
from wanderbus.mobility.session.session import SIPCommunicationStatus
from wanderbus.sip.message.sdp import SessionDescription

STRANGER = ("10.0.9.9", 5060)
OFFER = sdp(media_at(STRANGER))
MOVED = sdp(media_at(STRANGER, 41_000), version=2)


@pytest.fixture
def called(world: World) -> tuple[Scripted, Phone, str]:
    """A stranger in a session with bob, and bob's tag."""
    stranger, bob = Scripted(world, STRANGER), world.phone("bob", "10.0.1.1")
    world.run(0.5)
    invite = asking("INVITE", 1, body=OFFER)
    tag = stranger.asks(bob, invite).to.tag
    assert tag is not None
    stranger.acknowledges(bob, asking("INVITE", 1, tag, body=OFFER))
    return stranger, bob, tag


def test_an_update_by_update_needs_no_ack(talk: Talk) -> None:
    world, alice, broker = talk
    world.trace.clear()
    alice.reports.clear()
    alice.give(UpdateSession("call", media_at(alice.address, 7), "UPDATE"))
    world.run(5.0)
    assert [sent.what for sent in world.trace] == ["UPDATE", "200 UPDATE"]
    assert broker.session().remote_media == media_at(alice.address, 7)
    assert broker.all_of(SessionOffered)[-1].update
    assert [report.communication for report in alice.all_of(SessionStateChanged)] == [
        SIPCommunicationStatus.REINVITING,
        SIPCommunicationStatus.CONNECTED,
    ]
    assert alice.all_of(SessionEstablished) == [SessionEstablished("call", media_at(broker.address), True)]


def test_update_is_used_only_where_asked(talk: Talk) -> None:
    world, alice, _ = talk
    alice.move("10.0.3.1")
    alice.give(UpdateSession("call", media_at(alice.address, 8)))
    world.run(5.0)
    assert world.sent("UPDATE") == []


def test_a_move_may_be_announced_by_update(talk: Talk) -> None:
    """RFC 3311 5.1: UPDATE refreshes the target too; the called side authenticates it as any other offer."""
    world, alice, broker = talk
    world.relocate(alice, ("10.0.3.1", 5060))
    alice.agent._move(alice.address, world.now)
    alice.give(UpdateSession("call", media_at(alice.address), "UPDATE"))
    world.run(1.0)
    assert settled(alice, broker)
    broker.give(UpdateSession("call", media_at(broker.address, 9)))
    world.run(1.0)
    assert alice.session().remote_media == media_at(broker.address, 9)


@pytest.mark.parametrize("status", [405, 501, 504])
def test_a_reinvite_follows_a_refused_update(world: World, status: int) -> None:
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.accepts(proxy.got("INVITE")[0], headers=[("Allow", "INVITE, ACK, BYE, UPDATE")])
    alice.give(UpdateSession("call", media_at(alice.address, 7), "UPDATE"))
    world.run(0.1)
    proxy.says(status, to=proxy.got("UPDATE")[0])
    assert SessionDescription.parse(proxy.got("INVITE")[1].request.body).media == (media_at(alice.address, 7),)


def test_a_reinvite_replaces_a_disallowed_update_at_once(world: World) -> None:
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.accepts(proxy.got("INVITE")[0], headers=[("Allow", "INVITE, ACK, BYE")])
    alice.give(UpdateSession("call", media_at(alice.address, 7), "UPDATE"))
    world.run(0.1)
    assert proxy.got("UPDATE") == []
    assert len(proxy.got("INVITE")) == 2


def test_update_with_an_offer_is_answered(called: tuple[Scripted, Phone, str]) -> None:
    stranger, bob, tag = called
    response = stranger.asks(bob, asking("UPDATE", 2, tag, body=MOVED))
    assert response.status == 200
    assert SessionDescription.parse(response.body).media == (media_at(bob.address),)
    assert bob.agent.sessions["scripted"].remote_media == media_at(STRANGER, 41_000)


def test_update_without_an_offer_refreshes_the_target_and_nothing_else(called: tuple[Scripted, Phone, str]) -> None:
    stranger, bob, tag = called
    bob.reports.clear()
    response = stranger.asks(bob, asking("UPDATE", 2, tag, contact="10.0.9.8"))
    assert (response.status, response.body) == (200, b"")
    session = bob.agent.sessions["scripted"]
    assert session.dialog is not None
    assert session.dialog.remote_target == "sip:alice@10.0.9.8:5060"
    assert session.remote_media == media_at(STRANGER)
    assert bob.reports == []


@pytest.mark.parametrize(
    ("status", "number", "tag", "contact"),
    [
        (481, 2, "unknown", "10.0.9.9"),
        (481, 2, None, "10.0.9.9"),
        (500, 0, "", "10.0.9.9"),
        (400, 2, "", "somewhere.example"),
    ],
)
def test_update_out_of_place(
    called: tuple[Scripted, Phone, str], status: int, number: int, tag: str | None, contact: str
) -> None:
    stranger, bob, ours = called
    made_up = asking("UPDATE", number, ours if tag == "" else tag, contact=contact)
    assert stranger.asks(bob, made_up).status == status


def test_an_update_whose_owner_thinks_too_long_gets_504(world: World, called: tuple[Scripted, Phone, str]) -> None:
    """RFC 3311 5.2: there is no way to wait for a user."""
    stranger, bob, tag = called
    bob.answers = False
    stranger.sends(bob, asking("UPDATE", 2, tag, body=MOVED))
    world.run(3.0)
    assert [sent.what for sent in world.trace if sent.source == bob.address][-1] == "504 UPDATE"
    bob.give(AcceptOffer("scripted", media_at(bob.address)))
    assert bob.agent.sessions["scripted"].remote_media == media_at(STRANGER)
    bob.answers = True
    assert stranger.asks(bob, asking("UPDATE", 3, tag, body=MOVED)).status == 200


def test_an_update_may_be_refused(called: tuple[Scripted, Phone, str]) -> None:
    stranger, bob, tag = called
    bob.noticed = lambda report: (  # type: ignore[method-assign]
        bob.give(Refuse(report.id, 488)) if isinstance(report, SessionOffered) else None
    )
    assert stranger.asks(bob, asking("UPDATE", 2, tag, body=MOVED)).status == 488
    assert bob.agent.sessions["scripted"].remote_media == media_at(STRANGER)


@pytest.mark.parametrize(("theirs", "ours"), [("UPDATE", "INVITE"), ("INVITE", "UPDATE"), ("UPDATE", "UPDATE")])
def test_rfc3264_4_no_second_offer_while_one_is_open(theirs: str, ours: str, talk: Talk) -> None:
    """Glare: both are refused with 491, wait and are repeated (RFC 3311 5.2, RFC 3261 14.1)."""
    world, alice, broker = talk
    alice.give(UpdateSession("call", media_at(alice.address, 1), theirs))  # type: ignore[arg-type]
    broker.give(UpdateSession("call", media_at(broker.address, 1), ours))  # type: ignore[arg-type]
    world.run(0.5)
    assert len([sent for sent in world.trace if sent.what.startswith("491")]) >= 2
    world.run(10.0)
    assert alice.session().local_media == broker.session().remote_media
    assert broker.session().local_media == alice.session().remote_media
    assert settled(alice, broker)
    assert not alice.all_of(UpdateFailed)


def test_rfc3311_5_2_a_second_update_before_the_first_is_answered_gets_500(
    called: tuple[Scripted, Phone, str],
) -> None:
    stranger, bob, tag = called
    bob.answers = False
    stranger.sends(bob, asking("INVITE", 2, tag, body=MOVED))
    response = stranger.asks(bob, asking("UPDATE", 3, tag, body=MOVED))
    assert response.status == 500
    assert response.header("Retry-After") is not None


def test_a_peer_that_moved_again_while_its_update_waits_is_not_kept_waiting(
    world: World, called: tuple[Scripted, Phone, str]
) -> None:
    """A move during a re-INVITE: the new address overtakes the offer from the old one."""
    stranger, bob, tag = called
    bob.answers = False
    stranger.asks(bob, asking("INVITE", 2, tag, body=MOVED))
    there = ("10.0.9.8", 5060)
    newer = Scripted(world, there)
    newer.asks(bob, asking("INVITE", 3, tag, body=sdp(media_at(there)), contact=there[0]))
    bob.give(AcceptOffer("scripted", media_at(bob.address)))
    world.run(0.1)
    assert bob.agent.sessions["scripted"].remote_media == media_at(there)
