"""Sessions begin and end (RFC 3261 13 and 15, SPEC C-05, C-11, C-15, D-06, D-07, X12)."""

from __future__ import annotations

import pytest

from tests.mobility.world import DOMAIN, SERVER, Phone, Talk, World, established, media_at
from wanderbus.errors import LocalProtocolError
from wanderbus.mobility.messages import (
    AcceptOffer,
    CreateSession,
    Refuse,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    SessionRemoved,
    SessionStateChanged,
    SetMediaStatus,
    StopUserAgent,
    TerminateSession,
    UpdateFailed,
    UpdateSession,
)
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPCommunicationStatus

Status = SIPCommunicationStatus


def states(phone: Phone) -> list[SIPCommunicationStatus]:
    return [report.communication for report in phone.all_of(SessionStateChanged)]


def two(world: World) -> tuple[Phone, Phone]:
    alice, bob = world.phone("alice", "10.0.2.1"), world.phone("bob", "10.0.1.1")
    world.run(1.0)
    return alice, bob


def test_d06_both_sides_learn_where_the_other_receives(talk: Talk) -> None:
    _, alice, broker = talk
    assert alice.all_of(SessionEstablished) == [SessionEstablished("call", media_at(broker.address), False)]
    assert broker.all_of(SessionEstablished) == [SessionEstablished("call", media_at(alice.address), False)]
    offered = SessionOffered("call", f"sip:alice@{DOMAIN}", "<urn:uuid:alice>", media_at(alice.address), False)
    assert broker.all_of(SessionOffered) == [offered]


def test_c11_the_session_holds_what_was_agreed(talk: Talk) -> None:
    _, alice, broker = talk
    session = broker.session()
    assert (session.owner_uri, session.remote_uri) == (f"sip:broker@{DOMAIN}", f"sip:alice@{DOMAIN}")
    assert (session.sip_address, session.sip_transport) == (broker.address, "UDP")
    assert (session.local_media, session.remote_media) == (media_at(broker.address), media_at(alice.address))
    assert session.remote_instance == "<urn:uuid:alice>"
    assert (session.communication, session.media_status) == (Status.CONNECTED, RemoteMediaStatus.CONNECTED)
    assert not session.created_here
    assert alice.session().created_here
    assert alice.session().remote_instance == "<urn:uuid:broker>"


def test_c15_states_of_an_establishment(talk: Talk) -> None:
    _, alice, broker = talk
    assert states(alice) == [Status.INVITING, Status.CONNECTED]
    assert states(broker) == [Status.RINGING_HERE, Status.CONNECTED]


def test_d07_the_proxy_finds_a_callee_that_registered_elsewhere(world: World) -> None:
    alice, bob = two(world)
    bob.move("10.0.9.9")
    world.run(1.0)
    alice.call("bob")
    world.run(1.0)
    assert alice.sends_to(bob)


def test_the_owner_may_answer_later(world: World) -> None:
    alice, bob = two(world)
    bob.answers = False
    alice.call("bob")
    world.run(1.5)
    assert states(alice) == [Status.INVITING]
    bob.give(AcceptOffer("call", media_at(bob.address)))
    world.run(1.0)
    assert alice.sends_to(bob)


@pytest.mark.parametrize(("status", "state"), [(486, Status.BUSY_THERE), (603, None)])
def test_c15_refused_invite(world: World, status: int, state: SIPCommunicationStatus | None) -> None:
    alice, bob = two(world)
    bob.answers = False
    alice.call("bob")
    world.run(0.5)
    bob.give(Refuse("call", status))
    world.run(1.0)
    assert [report.status for report in alice.all_of(SessionFailed)] == [status]
    assert states(alice) == [Status.INVITING, *([state] if state else []), Status.DISCONNECTED]
    assert not alice.agent.sessions
    assert not bob.agent.sessions


@pytest.mark.parametrize(("user", "status"), [("broker", 480), ("mallory", 404)])
def test_invite_to_nobody_fails(world: World, user: str, status: int) -> None:
    """RFC 3261 16.4 and 21.4: 480 for a user who is not registered, 404 for one who does not exist."""
    alice = world.phone("alice", "10.0.2.1")
    world.run(1.0)
    alice.call(user)
    world.run(1.0)
    assert [report.status for report in alice.all_of(SessionFailed)] == [status]


def test_invite_without_any_server_fails_after_timer_b(world: World) -> None:
    """RFC 3261 17.1.1.2: one INVITE, retransmitted at doubled intervals for 64*T1."""
    alice = world.phone("alice", "10.0.2.1")
    world.run(1.0)
    world.server.crash()
    alice.call("broker")
    took_s = world.run_until(lambda: bool(alice.all_of(SessionFailed)))
    assert alice.all_of(SessionFailed)[0].status is None
    assert took_s == pytest.approx(32.0)
    assert len(world.sent("INVITE", alice)) == 7
    assert {sent.message.cseq.number for sent in world.sent("INVITE", alice)} == {1}


def test_invite_heals_soon_after_the_server_was_down_for_two_seconds(world: World) -> None:
    alice, bob = two(world)
    dark_until = world.now + 2.0
    world.loses = lambda sent: world.now < dark_until and SERVER in (sent.source, sent.destination)
    alice.call("bob")
    world.run(2.0)
    assert world.run_until(lambda: alice.sends_to(bob)) < 2.0


def test_a_hurried_invite_survives_a_server_that_forgets_it_after_its_100(world: World) -> None:
    """The provisional response stops timer A (RFC 3261 17.1.1.2), so only a fresh INVITE can help."""
    alice, bob = two(world)
    world.loses = lambda sent: sent.what == "INVITE" and sent.destination == bob.address
    alice.give(CreateSession("call", f"sip:bob@{DOMAIN}", media_at(alice.address), hurried=True))
    world.run(0.1)
    world.restart_server()
    world.loses = lambda sent: False
    bob.start()
    assert world.run_until(lambda: alice.sends_to(bob)) < 4.5


def test_lost_ack_makes_the_200_come_again(world: World) -> None:
    """RFC 3261 13.3.1.4: the called side repeats its 200 until the ACK comes."""
    alice, bob = two(world)
    world.loses = lambda sent: sent.what == "ACK" and len(world.sent("ACK")) <= 2
    alice.call("bob")
    world.run(60.0)
    assert len(world.sent("200 INVITE", bob)) == 3
    assert len(world.sent("ACK", alice)) == 3
    assert alice.sends_to(bob)
    assert len(alice.all_of(SessionEstablished)) == 1


def test_a_new_session_whose_acks_are_all_lost_is_confirmed_by_a_reinvite(world: World) -> None:
    """RFC 3261 13.3.1.4 would end it after 64*T1."""
    alice, bob = two(world)
    answered_by = world.now + 32.0
    world.loses = lambda sent: sent.what == "ACK" and world.now < answered_by
    alice.call("bob")
    world.run(40.0)
    assert len(world.sent("INVITE", bob)) == 1
    assert alice.sends_to(bob)
    assert bob.sends_to(alice)
    assert not alice.all_of(SessionRemoved)


def test_a_new_session_whose_caller_vanished_ends(world: World) -> None:
    alice, bob = two(world)
    alice.call("bob")
    world.run_until(lambda: bool(bob.all_of(SessionEstablished)))
    alice.crash()
    world.run(100.0)
    assert [report.id for report in bob.all_of(UpdateFailed)] == ["call"]
    assert not bob.agent.sessions


@pytest.mark.parametrize("who_ends", [0, 1])
def test_bye_ends_the_session_on_both_sides(talk: Talk, who_ends: int) -> None:
    world, *parties = talk
    ender = parties[who_ends]
    ender.give(TerminateSession("call"))
    assert states(ender)[-1] is Status.DISCONNECTED
    world.run(1.0)
    for phone in parties:
        assert len(phone.all_of(SessionRemoved)) == 1
        assert phone.agent.sessions == {}
        assert states(phone)[-1] is Status.DISCONNECTED


def test_bye_of_both_sides_at_once(talk: Talk) -> None:
    world, alice, broker = talk
    alice.give(TerminateSession("call"))
    broker.give(TerminateSession("call"))
    world.run(1.0)
    assert len(alice.all_of(SessionRemoved)) == len(broker.all_of(SessionRemoved)) == 1


def test_bye_to_a_vanished_peer_ends_the_session_all_the_same(talk: Talk) -> None:
    world, alice, broker = talk
    broker.crash()
    alice.give(TerminateSession("call"))
    world.run(40.0)
    assert len(alice.all_of(SessionRemoved)) == 1


def test_a_session_ended_while_inviting_is_cancelled(world: World) -> None:
    """RFC 3261 9.1 and 9.2."""
    alice, bob = two(world)
    bob.answers = False
    alice.call("bob")
    world.run(0.5)
    alice.give(TerminateSession("call"))
    world.run(1.0)
    assert len(alice.all_of(SessionRemoved)) == len(bob.all_of(SessionRemoved)) == 1
    assert not alice.agent.sessions
    assert not bob.agent.sessions


def test_a_cancel_that_comes_too_late_is_followed_by_bye(world: World) -> None:
    """RFC 3261 15: the 200 was under way already."""
    alice, bob = two(world)
    alice.call("bob")
    world.run_until(lambda: bool(bob.all_of(SessionEstablished)))
    alice.give(TerminateSession("call"))
    world.run(5.0)
    assert len(world.sent("BYE", alice)) == 1
    assert alice.all_of(SessionEstablished) == []
    assert len(alice.all_of(SessionRemoved)) == len(bob.all_of(SessionRemoved)) == 1


def test_stop_ends_sessions_and_registration(talk: Talk) -> None:
    world, alice, broker = talk
    alice.give(StopUserAgent())
    world.run(1.0)
    assert len(broker.all_of(SessionRemoved)) == 1
    assert world.registered_at("alice") == []


def test_c14_media_status_is_the_applications_and_leaves_the_signalling_alone(talk: Talk) -> None:
    world, alice, _ = talk
    alice.give(SetMediaStatus("call", RemoteMediaStatus.DISCONNECTED))
    assert alice.reports[-1] == SessionStateChanged("call", Status.CONNECTED, RemoteMediaStatus.DISCONNECTED)
    alice.give(UpdateSession("call", media_at(alice.address)))
    world.run(1.0)
    assert alice.session().media_status is RemoteMediaStatus.CONNECTED


def test_local_faults_raise_and_late_requests_do_not(talk: Talk) -> None:
    """SPEC C-15: an id in use, no user, a status that refuses nothing; but a session may have ended already."""
    _, alice, broker = talk
    media = media_at(alice.address)
    with pytest.raises(LocalProtocolError, match="already"):
        alice.give(CreateSession("call", f"broker@{DOMAIN}", media))
    with pytest.raises(LocalProtocolError, match="cannot invite"):
        alice.give(CreateSession("other", DOMAIN, media))
    with pytest.raises(LocalProtocolError, match="session id"):
        alice.give(CreateSession("two words", f"broker@{DOMAIN}", media))
    gone = "gone"
    late = [AcceptOffer(gone, media), Refuse(gone, 486), UpdateSession(gone, media), TerminateSession(gone)]
    alice.give(*late, SetMediaStatus(gone, RemoteMediaStatus.CONNECTED), AcceptOffer("call", media))
    assert alice.sends_to(broker)


def test_refuse_needs_a_status_that_refuses(world: World) -> None:
    alice, bob = two(world)
    bob.answers = False
    alice.call("bob")
    world.run(0.5)
    with pytest.raises(LocalProtocolError, match="200"):
        bob.give(Refuse("call", 200))


def test_two_user_agents_talk_without_any_server() -> None:
    """SPEC S-05: the server address may be the peer itself."""
    world = World()
    world.server.crash()
    bob = world.phone("bob", "10.0.1.1", server=("10.0.2.1", 5060))
    alice = world.phone("alice", "10.0.2.1", server=bob.address)
    alice.call("bob")
    world.run(1.0)
    assert alice.sends_to(bob)
    assert bob.sends_to(alice)


def test_the_same_seed_gives_the_same_trace() -> None:
    """DESIGN 2: no ambient input."""
    first, second = (established(7, 0.3)[0] for _ in range(2))
    assert [(sent.at, sent.message) for sent in first.trace] == [(sent.at, sent.message) for sent in second.trace]
