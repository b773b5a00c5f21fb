"""A move in its four steps, read from the wire (SPEC D-08, D-12, X12)."""

from __future__ import annotations

import pytest

from tests.mobility.world import SERVER, Talk, media_at, settled
from wanderbus.mobility.messages import Registered, SessionStateChanged, SetMediaStatus, UpdateFailed
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.sip.message.sdp import SessionDescription

Status = SIPCommunicationStatus
Media = RemoteMediaStatus


@pytest.fixture
def moved(talk: Talk) -> Talk:
    """Alice moved half a second ago; the trace and all reports begin with that move."""
    world, alice, broker = talk
    world.run(1.0)
    for phone in (alice, broker):
        phone.give(SetMediaStatus("call", Media.DISCONNECTED))
        phone.reports.clear()
        phone.reported_at.clear()
    world.trace.clear()
    world.jitter = 0.0
    alice.move("10.0.3.1")
    world.run(0.5)
    return talk


def test_d08_four_steps_in_trace_order(moved: Talk) -> None:
    """1: REGISTER to the server. 2: re-INVITE straight to the peer, same session, new Contact and SDP."""
    world, alice, broker = moved
    first = [(sent.what, sent.destination) for sent in world.trace[:2]]
    assert first == [("REGISTER", SERVER), ("INVITE", broker.address)]
    register, invite = (sent.message for sent in world.trace[:2])
    for request in (register, invite):
        assert request.contact is not None
        assert request.contact.uri.host == "10.0.3.1"
    assert invite.call_id == "call"
    assert SessionDescription.parse(invite.body).media == (media_at(alice.address),)
    assert [sent.what for sent in world.trace if sent.source == broker.address] == ["200 INVITE"]
    assert [sent.what for sent in world.trace if sent.destination == broker.address] == ["INVITE", "ACK"]


def test_d08_then_both_store_what_is_new_and_are_connected_and_data_can_flow(moved: Talk) -> None:
    """3: the callee is CONNECTED when it sends its 200, the caller when it receives it (X12). 4: each has the other's
    address.
    """
    world, alice, broker = moved
    connected = SessionStateChanged("call", Status.CONNECTED, Media.CONNECTED)
    reinviting = SessionStateChanged("call", Status.REINVITING, Media.DISCONNECTED)
    assert broker.all_of(SessionStateChanged) == [connected]
    assert alice.all_of(SessionStateChanged) == [reinviting, connected]
    sent_200 = world.sent("200 INVITE", broker)[0].at
    assert broker.reported_at[broker.reports.index(connected)] == sent_200
    assert alice.reported_at[alice.reports.index(connected)] == pytest.approx(sent_200 + world.delay_s)
    assert broker.session().remote_media == alice.session().local_media == media_at(alice.address)
    dialog = broker.session().dialog
    assert dialog is not None
    assert dialog.remote_target == f"sip:alice@{alice.address[0]}:5060"
    assert settled(alice, broker)
    assert world.registered_at("alice") == ["10.0.3.1"]


def test_d12_registrar_and_peer_out_of_reach_for_five_seconds(talk: Talk) -> None:
    """The session stays, its media DISCONNECTED, and both REGISTER and re-INVITE get through once they can."""
    world, alice, broker = talk
    alice.give(SetMediaStatus("call", Media.DISCONNECTED))
    alice.reports.clear()
    dark_until = world.now + 5.0
    world.loses = lambda sent: world.now < dark_until and alice.address in (sent.source, sent.destination)
    alice.move("10.0.3.1")
    world.run(5.0)
    assert alice.session().media_status is Media.DISCONNECTED
    assert alice.session().communication is Status.REINVITING
    assert alice.all_of(Registered) == []
    assert world.run_until(lambda: settled(alice, broker)) < 4.0
    assert alice.session().media_status is Media.CONNECTED
    assert world.run_until(lambda: world.registered_at("alice") == ["10.0.3.1"]) < 4.0
    assert alice.all_of(UpdateFailed) == []


def test_d12_the_registrar_restarts_while_the_session_moves(talk: Talk) -> None:
    world, alice, broker = talk
    world.server.crash()
    alice.move("10.0.3.1")
    world.run(1.0)
    assert settled(alice, broker), "the session does not need the registrar"
    world.restart_server()
    world.run_until(lambda: world.registered_at("alice") == ["10.0.3.1"], 9.0)
