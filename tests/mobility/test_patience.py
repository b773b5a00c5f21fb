"""Timeouts of an INVITE, and the handling of an abandoned one (RFC 3261 9.1, 13.2.2.4, 14.1, 17.1.1.2)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted
from tests.mobility.world import DOMAIN, Phone, Talk, World, established, media_at
from wanderbus.machine import Address
from wanderbus.mobility.messages import (
    AddressChanged,
    CreateSession,
    SessionEstablished,
    SessionFailed,
    SessionRemoved,
    SetMediaStatus,
    TerminateSession,
    UpdateFailed,
    UpdateSession,
)
from wanderbus.mobility.session.session import RemoteMediaStatus
from wanderbus.sip.message.message import Request
from wanderbus.sip.transaction.transaction_layer import RequestReceived

Calling = tuple[World, Phone, Scripted, RequestReceived]

HOME: Address = ("10.0.2.1", 5060)
TIMER_B_S = 32.0
PATIENCE_S = 180.0


@pytest.fixture
def calling(world: World) -> Calling:
    """Alice, whose INVITE to bob has arrived at a scripted peer; by default the peer does not even send 100."""
    peer = Scripted(world)
    world.loses = lambda sent: sent.what == "100 INVITE"
    alice = world.phone("alice", HOME[0])
    alice.call("bob")
    world.run(0.1)
    return world, alice, peer, peer.got("INVITE")[0]


@pytest.fixture
def in_call(calling: Calling) -> Calling:
    """The same, answered."""
    _, _, peer, invite = calling
    peer.accepts(invite)
    return calling


def tags(requests: list[Request]) -> list[str | None]:
    return [request.to.tag for request in requests]


def byes(peer: Scripted) -> list[str | None]:
    return tags([bye.request for bye in peer.got("BYE")])


def test_a_200_after_31_s_of_silence_establishes_the_session(calling: Calling) -> None:
    world, alice, peer, invite = calling
    world.run(31.0 - 0.1)
    assert len(peer.got("INVITE")) == 1
    peer.accepts(invite)
    assert alice.all_of(SessionEstablished) == [SessionEstablished("call", media_at(peer.address), False)]
    assert tags(peer.acks) == ["peer"]
    world.run(100.0)
    assert peer.got("BYE") == peer.got("CANCEL") == []


@pytest.mark.parametrize(("status", "silence_s"), [(100, 20.0), (100, 170.0), (180, 60.0), (183, 170.0)])
def test_a_provisional_response_is_waited_after(calling: Calling, status: int, silence_s: float) -> None:
    world, alice, peer, invite = calling
    world.loses = lambda sent: False
    peer.says(status, "peer", to=invite)
    world.run(silence_s)
    assert len(peer.got("INVITE")) == 1
    assert peer.got("CANCEL") == []
    peer.accepts(invite)
    assert len(alice.all_of(SessionEstablished)) == 1


def test_another_ringing_restarts_the_timeout(calling: Calling) -> None:
    world, alice, peer, invite = calling
    for _ in range(4):
        peer.says(180, "peer", to=invite)
        world.run(120.0)
    peer.accepts(invite)
    assert len(alice.all_of(SessionEstablished)) == 1


def test_ringing_for_too_long_is_cancelled_and_reported(calling: Calling) -> None:
    world, alice, peer, invite = calling
    peer.says(180, "peer", to=invite)
    world.run(PATIENCE_S)
    assert [cancel.cseq.number for cancel in requests_of(world, "CANCEL", alice)] == [invite.request.cseq.number]
    peer.says(487, "peer", to=invite)
    assert [(report.status, report.reason) for report in alice.all_of(SessionFailed)] == [(None, "no response")]
    world.run(100.0)
    assert len(peer.got("INVITE")) == 1
    assert alice.agent.transaction_count <= 1, "of the CANCEL and the INVITE nothing is left"


def requests_of(world: World, method: str, phone: Phone) -> list[Request]:
    return [sent.message for sent in world.sent(method, phone) if isinstance(sent.message, Request)]


def test_an_invite_nobody_answered_provisionally_is_cancelled_after_its_first_provisional_response(
    calling: Calling,
) -> None:
    """RFC 3261 9.1: the CANCEL waits, and the INVITE is retransmitted, as its answer may have been lost."""
    world, alice, peer, invite = calling
    alice.give(TerminateSession("call"))
    world.run(5.0)
    assert world.sent("CANCEL", alice) == []
    assert len(world.sent("INVITE", alice)) == 4
    peer.says(180, "peer", to=invite)
    assert len(world.sent("CANCEL", alice)) == 1
    peer.says(487, "peer", to=invite)
    assert [report.reason for report in alice.all_of(SessionRemoved)] == ["ended here"]


def test_an_invite_that_is_ended_quietly_is_not_repeated(calling: Calling) -> None:
    world, alice, peer, invite = calling
    alice.give(TerminateSession("call", quietly=True))
    world.run(10.0)
    assert len(world.sent("INVITE", alice)) == 1
    peer.says(180, "peer", to=invite)
    assert len(world.sent("CANCEL", alice)) == 1


def test_a_200_that_crosses_the_cancel_is_acknowledged_each_time_and_ended_once(calling: Calling) -> None:
    _, alice, peer, invite = calling
    peer.says(180, "peer", to=invite)
    alice.give(TerminateSession("call"))
    for _ in range(3):
        peer.accepts(invite)
    assert alice.all_of(SessionEstablished) == []
    assert tags(peer.acks) == ["peer"] * 3
    assert byes(peer) == ["peer"]


def test_a_200_30_s_after_the_cancel_is_acknowledged_and_ended(calling: Calling) -> None:
    world, _, peer, invite = calling
    peer.says(180, "peer", to=invite)
    world.nodes[HOME].give(TerminateSession("call"))
    world.run(30.0)
    peer.accepts(invite)
    assert tags(peer.acks) == byes(peer) == ["peer"]


def test_two_200s_from_forks_after_the_cancel_are_both_ended(calling: Calling) -> None:
    _, alice, peer, invite = calling
    peer.says(180, "first", to=invite)
    alice.give(TerminateSession("call"))
    peer.accepts(invite, "first")
    peer.accepts(invite, "second")
    assert tags(peer.acks) == byes(peer) == ["first", "second"]


@pytest.mark.parametrize("rings", [True, False])
def test_a_move_cancels_and_calls_again_from_the_new_address(calling: Calling, rings: bool) -> None:
    world, alice, peer, invite = calling
    if rings:
        peer.says(180, "old", to=invite)
    alice.move("10.0.3.1")
    world.run(0.1)
    sent = [sent.what for sent in world.trace if sent.source == alice.address and sent.what != "REGISTER"]
    assert sent == (["CANCEL", "INVITE"] if rings else ["INVITE"])
    again = peer.got("INVITE")[1].request
    assert again.cseq.number == invite.request.cseq.number + 1
    assert again.contact is not None
    assert again.contact.uri.host == "10.0.3.1"


def test_the_late_200_to_an_invite_from_before_a_move_is_acknowledged_and_ended(calling: Calling) -> None:
    """Both addresses are reached for a while."""
    world, alice, peer, invite = calling
    alice.move("10.0.3.1")
    world.nodes[HOME] = alice
    world.run(0.1)
    peer.accepts(invite, "old")
    peer.accepts(peer.got("INVITE")[1], "new")
    peer.accepts(invite, "old")
    assert tags(peer.acks) == ["old", "new", "old"]
    assert byes(peer) == ["old"]
    dialog = alice.session().dialog
    assert dialog is not None
    assert dialog.remote_tag == "new"
    world.run(PATIENCE_S)
    assert len(peer.got("INVITE")) == 2


def test_an_abandoned_invite_that_only_rang_is_over_after_64_t1(calling: Calling) -> None:
    world, alice, peer, invite = calling
    peer.says(180, "old", to=invite)
    before = alice.agent.transaction_count
    alice.move("10.0.3.1")
    world.run(0.1)
    peer.accepts(peer.got("INVITE")[1], "new")
    world.run(2 * TIMER_B_S + 1.0)
    assert alice.agent.transaction_count < before


def test_a_hurried_invite_is_cancelled_before_it_is_repeated(world: World) -> None:
    peer = Scripted(world)
    alice = world.phone("alice", HOME[0])
    alice.give(CreateSession("call", f"sip:broker@{DOMAIN}", media_at(alice.address), hurried=True))
    world.run(0.1)
    first = peer.got("INVITE")[0]
    peer.says(100, to=first)
    world.run(4.0)
    assert [sent.what for sent in world.trace if sent.source == HOME][-2:] == ["CANCEL", "INVITE"]
    peer.accepts(first, "late")
    peer.accepts(peer.got("INVITE")[1], "peer")
    assert tags(peer.acks) == ["late", "peer"]
    assert byes(peer) == ["late"]


def test_an_update_waits_for_the_answer_to_the_one_before(in_call: Calling) -> None:
    """RFC 3261 14.1; updates requested in between are not sent."""
    world, alice, peer, _ = in_call
    for port in (1, 2, 3):
        alice.give(UpdateSession("call", media_at(alice.address, port)))
        world.run(10.0)
    assert len(peer.got("INVITE")) == 2
    peer.accepts(peer.got("INVITE")[1])
    assert len(peer.got("INVITE")) == 3
    assert b"application 3 UDP" in peer.got("INVITE")[2].request.body
    peer.accepts(peer.got("INVITE")[2])
    world.run(10.0)
    assert [report.update for report in alice.all_of(SessionEstablished)] == [False, True]
    assert len(peer.got("INVITE")) == 3


def test_a_temporarily_refused_update_is_repeated_with_the_owners_latest_request(in_call: Calling) -> None:
    world, alice, peer, _ = in_call
    alice.give(UpdateSession("call", media_at(alice.address, 1)))
    alice.give(UpdateSession("call", media_at(alice.address, 2)))
    world.run(0.1)
    peer.says(500, to=peer.got("INVITE")[1])
    world.run(1.0)
    assert b"application 2 UDP" in peer.got("INVITE")[2].request.body


@pytest.mark.parametrize("silence_s", [31.0, 100.0])
def test_an_update_waits_as_long_as_a_first_invite(in_call: Calling, silence_s: float) -> None:
    world, alice, peer, _ = in_call
    alice.give(UpdateSession("call", media_at(alice.address, 1)))
    world.run(0.1)
    update = peer.got("INVITE")[1]
    if silence_s > TIMER_B_S:
        world.loses = lambda sent: False
        peer.says(100, to=update)
    world.run(silence_s - 0.2)
    assert len(peer.got("INVITE")) == 2
    peer.accepts(update)
    assert len(alice.all_of(SessionEstablished)) == 2


def test_an_update_without_answer_ends_with_bye(in_call: Calling) -> None:
    """RFC 3261 12.2.1.2: straight for 64*T1, through the proxy for 64*T1, and then the dialog ends."""
    world, alice, peer, _ = in_call
    alice.give(UpdateSession("call", media_at(alice.address, 1)))
    took_s = world.run_until(lambda: alice.all_of(UpdateFailed))
    world.run(0.1)
    assert took_s == pytest.approx(2 * TIMER_B_S)
    assert len(peer.got("INVITE")) == 1 + 2
    assert byes(peer) == ["peer"]


def test_an_abandoned_update_is_acknowledged_when_it_is_accepted_late(in_call: Calling) -> None:
    """Without data flow the next attempt does not wait; a phone that accepts both keeps the session."""
    world, alice, peer, _ = in_call
    alice.give(SetMediaStatus("call", RemoteMediaStatus.DISCONNECTED), UpdateSession("call", media_at(HOME, 1)))
    world.run(3.0)
    first, second = peer.got("INVITE")[1:]
    peer.accepts(first)
    peer.accepts(second)
    assert [ack.cseq.number for ack in peer.acks][1:] == [first.request.cseq.number, second.request.cseq.number]
    assert byes(peer) == []
    assert len(alice.all_of(SessionEstablished)) == 2


def test_a_bye_during_an_update_leaves_its_200_acknowledged(in_call: Calling) -> None:
    world, alice, peer, _ = in_call
    alice.give(UpdateSession("call", media_at(HOME, 1)))
    world.run(0.1)
    alice.give(TerminateSession("call"))
    world.run(0.1)
    peer.accepts(peer.got("INVITE")[1])
    assert len(peer.acks) == 2


def test_a_2xx_that_cannot_be_read_is_waited_for_again(calling: Calling) -> None:
    world, alice, peer, invite = calling
    peer.says(200, "peer", to=invite, headers=[("Contact", "<tel:123>")])
    world.run(20.0)
    assert alice.all_of(SessionFailed) == []
    peer.accepts(invite)
    assert len(alice.all_of(SessionEstablished)) == 1


def test_a_2xx_that_can_never_be_read_ends_the_attempt(calling: Calling) -> None:
    world, alice, peer, invite = calling
    peer.says(200, "peer", to=invite, headers=[("Contact", "<tel:123>")])
    world.run(2 * TIMER_B_S)
    assert [report.reason for report in alice.all_of(SessionFailed)] == ["no response"]


@pytest.mark.parametrize("seed", range(20))
def test_two_invites_of_one_side_are_never_open_at_once_without_hurry(seed: int) -> None:
    """RFC 3261 14.1, on a lossy line, with updates at random moments."""
    talk: Talk = established(seed, 0.3)
    world, alice, _ = talk
    for port in range(1, 8):
        alice.give(UpdateSession("call", media_at(alice.address, port)))
        world.run(world.random.uniform(0.0, 2.0))
        assert invites_open(alice) <= 1
    world.loss = 0.0
    world.run(100.0)
    assert alice.session().local_media == media_at(alice.address, 7)


def invites_open(phone: Phone) -> int:
    transactions = phone.agent._layer._clients._transactions
    return sum(key[1] == "INVITE" and item.request is not None for key, item in transactions.items())


def test_a_recovered_address_is_announced_hurriedly(in_call: Calling) -> None:
    """A move does not wait for the RFC's patience: the next attempt follows after two seconds."""
    world, alice, peer, _ = in_call
    world.relocate(alice, ("10.0.3.1", 5060))
    alice.give(AddressChanged(alice.address), UpdateSession("call", media_at(alice.address)))
    world.run(2.5)
    assert len(peer.got("INVITE")) == 1 + 2
