"""An INVITE without offer: ours is in the 200, the answer in the ACK (RFC 3261 13.2.1, 14.2; RFC 3264 4)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted, asking, sdp
from tests.mobility.world import DOMAIN, Phone, World, media_at
from wanderbus.mobility.messages import (
    AcceptOffer,
    OfferWanted,
    Refuse,
    SessionEstablished,
    SessionOffered,
    SessionRemoved,
    SessionStateChanged,
    TerminateSession,
    UpdateSession,
)
from wanderbus.mobility.session.session import SIPCommunicationStatus
from wanderbus.sip.message.sdp import SessionDescription

Status = SIPCommunicationStatus
STRANGER = ("10.0.9.9", 5060)
THEIRS = sdp(media_at(STRANGER))


@pytest.fixture
def stranger(world: World) -> Scripted:
    return Scripted(world, STRANGER)


@pytest.fixture
def bob(world: World) -> Phone:
    """An owner who accepts INVITEs without an offer and answers them when the test does."""
    phone = world.phone("bob", "10.0.1.1", properties={"takes_offerless": True})
    world.run(0.5)
    return phone


def offered(stranger: Scripted, bob: Phone) -> str:
    """Let the stranger INVITE without offer and bob answer; return bob's tag."""
    stranger.asks(bob, asking("INVITE", 1))
    bob.give(AcceptOffer("scripted", media_at(bob.address)))
    stranger.world.run(0.1)
    return bob.agent.sessions["scripted"].local_tag


def states(phone: Phone) -> list[SIPCommunicationStatus]:
    return [report.communication for report in phone.all_of(SessionStateChanged)]


def test_our_offer_is_in_the_200_and_the_answer_in_the_ack(stranger: Scripted, bob: Phone) -> None:
    tag = offered(stranger, bob)
    assert bob.all_of(OfferWanted) == [OfferWanted("scripted", f"sip:alice@{DOMAIN}", None)]
    assert states(bob) == [Status.RINGING_HERE], "not before there is an answer"
    ours = stranger.world.sent("200 INVITE", bob)[-1].message
    assert SessionDescription.parse(ours.body).media == (media_at(bob.address),)
    stranger.acknowledges(bob, asking("INVITE", 1, tag), THEIRS)
    assert states(bob) == [Status.RINGING_HERE, Status.CONNECTED]
    assert bob.all_of(SessionEstablished) == [SessionEstablished("scripted", media_at(STRANGER), False)]
    stranger.world.run(40.0)
    assert len(stranger.world.sent("200 INVITE", bob)) == 1


def test_such_an_invite_may_be_refused(stranger: Scripted, bob: Phone) -> None:
    stranger.asks(bob, asking("INVITE", 1))
    bob.give(Refuse("scripted", 603))
    stranger.world.run(0.1)
    assert stranger.world.sent("603 INVITE", bob)
    assert bob.agent.sessions == {}


@pytest.mark.parametrize("answer", [b"", b"nonsense", THEIRS.replace(b"40000", b"0")])
def test_a_new_session_without_an_answer_ends_with_bye(stranger: Scripted, bob: Phone, answer: bytes) -> None:
    tag = offered(stranger, bob)
    stranger.acknowledges(bob, asking("INVITE", 1, tag), answer)
    assert len(stranger.got("BYE")) == 1
    stranger.says(200, to=stranger.got("BYE")[0])
    assert len(bob.all_of(SessionRemoved)) == 1
    assert states(bob) == [Status.RINGING_HERE, Status.DISCONNECTED]


def test_rfc3261_13_3_1_4_a_new_session_that_is_never_confirmed_ends_with_bye(stranger: Scripted, bob: Phone) -> None:
    offered(stranger, bob)
    stranger.world.run(33.0)
    assert len(stranger.got("BYE")) == 1
    assert len(stranger.world.sent("200 INVITE", bob)) > 5


def test_ended_by_its_owner_before_the_answer_came(stranger: Scripted, bob: Phone) -> None:
    offered(stranger, bob)
    bob.give(TerminateSession("scripted"))
    stranger.world.run(0.1)
    assert len(stranger.got("BYE")) == 1


def test_rfc3264_4_no_offer_of_ours_or_theirs_while_ours_is_open(stranger: Scripted, bob: Phone) -> None:
    tag = offered(stranger, bob)
    bob.give(UpdateSession("scripted", media_at(bob.address, 7)))
    for method in ("INVITE", "UPDATE"):
        assert stranger.asks(bob, asking(method, 2, tag, body=THEIRS)).status == 491
    assert stranger.got("INVITE") == []
    stranger.acknowledges(bob, asking("INVITE", 1, tag), THEIRS)
    invite = stranger.got("INVITE")[0].request
    assert SessionDescription.parse(invite.body).media == (media_at(bob.address, 7),)


def test_a_reinvite_without_offer_gets_the_session_as_it_stands(world: World, stranger: Scripted) -> None:
    """RFC 3261 14.2; the owner has nothing to decide, so every user agent serves it."""
    bob = world.phone("bob", "10.0.1.1")
    world.run(0.5)
    tag = stranger.asks(bob, asking("INVITE", 1, body=THEIRS)).to.tag
    stranger.acknowledges(bob, asking("INVITE", 1, tag))
    response = stranger.asks(bob, asking("INVITE", 2, tag))
    assert SessionDescription.parse(response.body).media == (media_at(bob.address),)
    stranger.acknowledges(bob, asking("INVITE", 2, tag), sdp(media_at(STRANGER, 41_000)))
    assert len(bob.all_of(SessionOffered)) == 1
    assert bob.all_of(SessionEstablished)[-1] == SessionEstablished("scripted", media_at(STRANGER, 41_000), True)


def test_a_reinvite_without_offer_and_answer_leaves_the_session_alone(world: World, stranger: Scripted) -> None:
    bob = world.phone("bob", "10.0.1.1")
    world.run(0.5)
    tag = stranger.asks(bob, asking("INVITE", 1, body=THEIRS)).to.tag
    stranger.acknowledges(bob, asking("INVITE", 1, tag))
    stranger.asks(bob, asking("INVITE", 2, tag))
    stranger.acknowledges(bob, asking("INVITE", 2, tag))
    world.run(40.0)
    assert bob.agent.sessions["scripted"].remote_media == media_at(STRANGER)
    assert bob.agent.sessions["scripted"].communication is Status.CONNECTED


def test_without_an_owner_for_it_such_an_invite_is_refused(world: World, stranger: Scripted) -> None:
    bob = world.phone("bob", "10.0.1.1")
    world.run(0.5)
    assert stranger.asks(bob, asking("INVITE", 1)).status == 488
