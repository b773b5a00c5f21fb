"""Several responses to one INVITE (RFC 3261 12.1, 13.2.2.4; the scripted proxy forks as 16.7 item 5 says)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted
from tests.mobility.world import DOMAIN, Phone, World, media_at
from wanderbus.mobility.messages import SessionEstablished, SessionStateChanged, TerminateSession
from wanderbus.mobility.session.session import SIPCommunicationStatus
from wanderbus.sip.message.message import Request
from wanderbus.sip.transaction.transaction_layer import RequestReceived

Calling = tuple[World, Phone, Scripted, RequestReceived]


@pytest.fixture
def calling(world: World) -> Calling:
    """Alice, whose INVITE to bob has arrived at a scripted proxy."""
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    return world, alice, proxy, proxy.got("INVITE")[0]


def tags(requests: list[Request]) -> list[str | None]:
    return [request.to.tag for request in requests]


def test_the_first_200_wins_and_the_others_are_confirmed_and_ended(calling: Calling) -> None:
    world, alice, proxy, invite = calling
    for number, tag in enumerate(("first", "second", "third")):
        proxy.accepts(invite, tag, port=1_000 + number)
    world.run(1.0)
    assert alice.all_of(SessionEstablished) == [SessionEstablished("call", media_at(proxy.address, 1_000), False)]
    assert tags(proxy.acks) == ["first", "second", "third"]
    assert tags([bye.request for bye in proxy.got("BYE")]) == ["second", "third"]
    dialog = alice.session().dialog
    assert dialog is not None
    assert dialog.remote_tag == "first"


def test_a_repeated_200_of_a_loser_is_confirmed_again_and_ended_once(calling: Calling) -> None:
    world, alice, proxy, invite = calling
    proxy.accepts(invite, "first")
    for _ in range(3):
        proxy.accepts(invite, "second")
    world.run(1.0)
    assert tags(proxy.acks) == ["first", "second", "second", "second"]
    assert len(proxy.got("BYE")) == 1
    assert list(alice.agent.sessions) == ["call"]


def test_a_challenged_bye_to_a_losing_branch_is_repeated(calling: Calling) -> None:
    _, _, proxy, invite = calling
    proxy.accepts(invite, "first")
    proxy.accepts(invite, "second")
    challenge = f'Digest realm="{DOMAIN}", nonce="abc", algorithm=SHA-256, qop="auth"'
    proxy.says(401, to=proxy.got("BYE")[0], headers=[("WWW-Authenticate", challenge)])
    assert len(proxy.got("BYE")) == 2
    assert proxy.got("BYE")[1].request.header("Authorization") is not None
    assert proxy.got("BYE")[1].request.cseq.number > proxy.got("BYE")[0].request.cseq.number


def test_an_answer_that_comes_after_the_session_ended_is_confirmed_and_ended_too(calling: Calling) -> None:
    world, alice, proxy, invite = calling
    proxy.accepts(invite, "first")
    alice.give(TerminateSession("call"))
    world.run(0.1)
    proxy.says(200, to=proxy.got("BYE")[0])
    assert alice.agent.sessions == {}
    proxy.accepts(invite, "late")
    assert tags(proxy.acks) == ["first", "late"]
    assert tags([bye.request for bye in proxy.got("BYE")]) == ["first", "late"]


def test_many_losers_are_bounded(calling: Calling) -> None:
    world, alice, proxy, invite = calling
    proxy.accepts(invite, "first")
    for number in range(30):
        proxy.accepts(invite, f"loser {number}".replace(" ", "-"))
    world.run(0.5)
    assert len(proxy.got("BYE")) == 16
    assert alice.session().communication is SIPCommunicationStatus.CONNECTED


def test_early_dialogs_of_several_callees_ring_once_and_leave_no_trace(calling: Calling) -> None:
    """RFC 3261 12.1.2: each tag is an early dialog; only the one with the 200 becomes the session."""
    world, alice, proxy, invite = calling
    for tag in ("first", "second", "third"):
        proxy.says(180, tag, to=invite)
    proxy.accepts(invite, "second")
    world.run(1.0)
    status = SIPCommunicationStatus
    assert [report.communication for report in alice.all_of(SessionStateChanged)] == [
        status.INVITING,
        status.RINGING_THERE,
        status.CONNECTED,
    ]
    dialog = alice.session().dialog
    assert dialog is not None
    assert dialog.remote_tag == "second"
    assert proxy.got("BYE") == []


def test_an_offer_within_an_early_dialog_is_refused_for_now(calling: Calling) -> None:
    """RFC 3311 5.2: our own offer has no answer yet."""
    _, alice, proxy, invite = calling
    proxy.says(180, "first", to=invite)
    ours = invite.request
    fields = (
        ("Max-Forwards", "70"),
        ("From", f"{ours.header('To')};tag=first"),
        ("To", ours.header("From") or ""),
        ("Call-ID", ours.call_id),
        ("CSeq", "1 UPDATE"),
        ("Contact", "<sip:bob@10.0.0.1>"),
        ("Content-Type", "application/sdp"),
    )
    assert proxy.asks(alice, Request("UPDATE", "sip:alice@10.0.2.1", fields, ours.body)).status == 491
