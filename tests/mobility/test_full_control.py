"""Every message of a user agent passes its owner's handlers, whoever in the stack made it (SPEC C-08)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.mobility.scripted import Scripted, asking, sdp
from tests.mobility.world import DOMAIN, Phone, Sent, World, media_at
from wanderbus.machine import Address, DatagramReceived
from wanderbus.mobility.messages import AcceptOffer, Refuse, Ring, TerminateSession, UpdateSession
from wanderbus.sip.message.message import METHODS, Request, Response, encode_message
from wanderbus.sip.message.sdp import with_direction

MARK = "X-Marked"

M = TypeVar("M", Request, Response)


def marked(message: M) -> M:
    return message.with_header(MARK, "yes")


def control(phone: Phone, change: Callable[[M], M] = marked) -> Phone:
    """Let the owner of ``phone`` change every message."""
    for method in METHODS:
        phone.agent.replies.alter_requests(method, change)  # type: ignore[arg-type]
        if method != "ACK":
            phone.agent.replies.alter(method, change)  # type: ignore[arg-type]
    return phone


def by(world: World, *hosts: str) -> list[Sent]:
    return [sent for sent in world.trace if sent.source[0] in hosts]


def kinds(trace: list[Sent]) -> set[str]:
    return {sent.what for sent in trace}


def test_c08_every_message_of_a_whole_call_is_the_owners_to_change(world: World) -> None:
    """Registration, authentication, ringing, hold, a move, a refresh, a refused offer, CANCEL and BYE, with losses."""
    timers = {"session_expires_s": 90}
    alice = control(world.phone("alice", "10.0.2.1", properties=timers))
    bob = control(world.phone("bob", "10.0.1.1", authenticates=True, properties=timers))
    bob.answers = False
    world.trace.clear()
    lost = iter(range(4))
    world.loses = lambda sent: sent.what in ("ACK", "180 INVITE", "200 BYE") and next(lost, None) is not None
    for phone in (alice, bob):
        phone.start()
    world.run(1.0)
    alice.call("bob")
    world.run(1.0)
    bob.give(Ring("call"))
    world.run(1.0)
    bob.give(AcceptOffer("call", media_at(bob.address)))
    world.run(3.0)
    bob.answers = True
    alice.give(UpdateSession("call", with_direction(media_at(alice.address), "sendonly")))
    world.run(1.0)
    alice.move("10.0.3.1")
    world.run(60.0)
    bob.answers = False
    alice.give(UpdateSession("call", media_at(alice.address, 7)))
    world.run(1.0)
    bob.give(Refuse("call", 480))
    world.run(10.0)
    bob.give(AcceptOffer("call", media_at(bob.address)))
    world.run(1.0)
    alice.give(TerminateSession("call"))
    world.run(2.0)
    alice.call("bob", "second")
    world.run(1.0)
    alice.give(TerminateSession("second"))
    world.run(1.0)
    trace = by(world, "10.0.2.1", "10.0.3.1", "10.0.1.1")
    assert [sent.what for sent in trace if sent.message.header(MARK) != "yes"] == []
    assert kinds(trace) >= {
        *("REGISTER", "INVITE", "ACK", "CANCEL", "BYE", "UPDATE"),
        *("100 INVITE", "180 INVITE", "200 INVITE", "401 INVITE", "480 INVITE", "487 INVITE"),
        *("200 CANCEL", "200 BYE", "200 UPDATE"),
    }


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"Subject: caf\xe9", 400),
        (b"Expires: soon", 400),
    ],
)
def test_c08_handlers_see_messages_without_a_transaction(world: World, data: bytes, status: int) -> None:
    peer, bob = Scripted(world, ("10.0.9.9", 5060)), control(world.phone("bob", "10.0.1.1"))
    world.run(1.0)
    request = asking("OPTIONS", 1).with_first("Via", "SIP/2.0/UDP 10.0.9.9:5060;branch=z9hG4bKx;rport")
    broken = encode_message(request).replace(b"\r\nContent-Length", b"\r\n" + data + b"\r\nContent-Length")
    bob.give(DatagramReceived("sip", peer.address, broken))
    (answer,) = [sent.message for sent in by(world, "10.0.1.1") if sent.destination == peer.address]
    assert isinstance(answer, Response)
    assert (answer.status, answer.header(MARK)) == (status, "yes")


@pytest.mark.parametrize(
    ("method", "status"), [("CANCEL", 481), ("MESSAGE", 405), ("OPTIONS", 200), ("BYE", 481), ("SUBSCRIBE", 405)]
)
def test_c08_so_does_each_refusal(world: World, method: str, status: int) -> None:
    peer, bob = Scripted(world, ("10.0.9.9", 5060)), control(world.phone("bob", "10.0.1.1"))
    world.run(1.0)
    request = asking(method, 1).with_first("Via", "SIP/2.0/UDP 10.0.9.9:5060;branch=z9hG4bKx;rport")
    bob.give(DatagramReceived("sip", peer.address, encode_message(request)))
    (answer,) = [sent.message for sent in by(world, "10.0.1.1") if sent.destination == peer.address]
    assert isinstance(answer, Response)
    assert (answer.status, answer.header(MARK)) == (status, "yes")


def test_c08_a_retransmission_repeats_what_the_owner_made_of_it(world: World) -> None:
    world.server.crash()
    alice = control(world.phone("alice", "10.0.2.1"))
    alice.call("bob")
    world.run(10.0)
    invites = [sent.data for sent in world.sent("INVITE", alice)]
    assert len(invites) == 5
    assert len(set(invites)) == 1
    assert MARK.encode() in invites[0]


def test_c08_messages_derived_from_a_changed_invite_follow_it(world: World) -> None:
    """The ACK of a refusal and the CANCEL have the Request-URI and the Route of the INVITE that was sent."""
    peer = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    uri = f"sip:bob@{DOMAIN};x=y"

    def elsewhere(request: Request) -> Request:
        return Request("INVITE", uri, request.headers, request.body).with_header("Route", "<sip:10.0.0.1;lr>")

    alice.agent.replies.alter_requests("INVITE", elsewhere)
    alice.call("bob")
    world.run(0.1)
    peer.says(180, "peer", to=peer.got("INVITE")[0])
    alice.give(TerminateSession("call"))
    world.run(0.1)
    peer.says(487, "peer", to=peer.got("INVITE")[0])
    for method in ("INVITE", "CANCEL", "ACK"):
        (sent,) = [sent.message for sent in world.sent(method, alice)][:1]
        assert isinstance(sent, Request)
        assert (sent.uri, sent.header("Route")) == (uri, "<sip:10.0.0.1;lr>")
    assert not alice.agent.sessions


def test_c08_an_answer_that_would_be_longer_than_a_forged_request_is_reported(world: World) -> None:
    """A response to an unproven source has no more bytes than its request (SPEC C-20)."""
    faults: list[Exception] = []
    bob = world.phone("bob", "10.0.1.1")
    bob.agent.replies = type(bob.agent.replies)(faults.append)
    bob.agent.replies.alter("CANCEL", lambda reply: reply.with_header("Server", "x" * 2_000))
    world.run(1.0)
    source: Address = ("10.0.9.9", 5060)
    request = asking("CANCEL", 1, body=sdp(media_at(source))).with_first("Via", "SIP/2.0/UDP 10.0.9.9;branch=z9hG4bKx")
    bob.give(DatagramReceived("sip", source, encode_message(request)))
    (answer,) = [sent.message for sent in by(world, "10.0.1.1") if sent.destination == source]
    assert answer.header("Server") is None
    assert ["481 to CANCEL" in str(fault) for fault in faults] == [True]
