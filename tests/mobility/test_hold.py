"""sendonly, recvonly and inactive: our answer, the owner's view, our next offer (RFC 3264 6.1, 8.4)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted, asking, sdp
from tests.mobility.world import Phone, Talk, World, media_at
from wanderbus.mobility.messages import SessionEstablished, UpdateSession
from wanderbus.mobility.session.offer_answer import answer_to
from wanderbus.sip.message.sdp import (
    MediaDescription,
    SessionDescription,
    answering,
    direction_of,
    receives,
    with_direction,
)

ALL = ("sendrecv", "sendonly", "recvonly", "inactive")
LINE = MediaDescription(address="192.0.2.1", port=4_000)
HEAD = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\n{}t=0 0\r\n"
MEDIUM = "m=application 4000 UDP x-wanderbus\r\n{}"


def described(session: str = "", *media: str) -> SessionDescription:
    """Return a description with an attribute of its own, and of each medium."""
    lines = "".join(MEDIUM.format(f"a={each}\r\n" if each else "") for each in media)
    return SessionDescription.parse((HEAD.format(f"a={session}\r\n" if session else "") + lines).encode())


@pytest.mark.parametrize(
    ("offered", "answers"),
    [
        ("sendrecv", ("sendrecv", "sendonly", "recvonly", "inactive")),
        ("sendonly", ("recvonly", "inactive", "recvonly", "inactive")),
        ("recvonly", ("sendonly", "sendonly", "inactive", "inactive")),
        ("inactive", ("inactive",) * 4),
    ],
)
def test_rfc3264_6_1_an_answer_has_no_direction_that_the_offer_leaves_out(
    offered: str, answers: tuple[str, ...]
) -> None:
    theirs = with_direction(LINE, offered)
    assert tuple(direction_of(answering(with_direction(LINE, ours), theirs)) for ours in ALL) == answers


@pytest.mark.parametrize(
    ("session", "media", "expected"),
    [
        ("", ("", "sendonly"), ("sendrecv", "recvonly")),
        ("sendonly", ("", ""), ("recvonly", "recvonly")),
        ("inactive", ("", "sendrecv"), ("inactive", "sendrecv")),
        ("recvonly", ("inactive", ""), ("inactive", "sendonly")),
        ("sendrecv", ("", "recvonly"), ("sendrecv", "sendonly")),
    ],
)
def test_the_direction_of_a_session_holds_for_each_line_without_one(
    session: str, media: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    wanted = MediaDescription(address="192.0.2.2", port=5_000, beside=(media_at(("192.0.2.2", 0), 6_000),))
    answer = answer_to(described(session, *media), wanted)
    assert tuple(map(direction_of, answer)) == expected


def test_an_unspecified_address_is_a_hold_from_before_rfc3264() -> None:
    assert not receives(MediaDescription(address="0.0.0.0", port=4_000))
    assert direction_of(answering(LINE, MediaDescription(address="0.0.0.0", port=4_000))) == "recvonly"


@pytest.mark.parametrize(
    ("offered", "answered", "held"),
    [("sendonly", "recvonly", True), ("recvonly", "sendonly", False), ("inactive", "inactive", True)],
)
def test_a_first_invite_is_answered_in_its_direction(world: World, offered: str, answered: str, held: bool) -> None:
    peer = Scripted(world)
    bob = world.phone("bob", "10.0.1.1")
    body = sdp(with_direction(media_at(peer.address), offered))
    response = peer.asks(bob, asking("INVITE", 1, body=body))
    (line,) = SessionDescription.parse(response.body).media
    assert direction_of(line) == answered
    session = bob.session("scripted")
    assert (session.direction, session.held) == (answered, held)


def hold(phone: Phone, direction: str) -> None:
    phone.give(UpdateSession("call", with_direction(media_at(phone.address), direction)))
    phone.world.run(1.0)


@pytest.mark.parametrize("direction", ["sendonly", "inactive"])
def test_hold_and_resume_are_reported_and_both_sides_agree(talk: Talk, direction: str) -> None:
    _, alice, broker = talk
    hold(alice, direction)
    assert broker.session().held
    assert (alice.session().held, alice.session().direction) == (direction == "inactive", direction)
    assert not receives(broker.all_of(SessionEstablished)[-1].media)
    hold(alice, "sendrecv")
    assert not broker.session().held
    assert alice.session().direction == broker.session().direction == "sendrecv"
    assert receives(broker.all_of(SessionEstablished)[-1].media)


def test_an_offer_of_the_held_side_keeps_its_own_direction(talk: Talk) -> None:
    """RFC 3264 8.4, RFC 6337 5.3: the held side offers its own direction, and the answer holds it; no side is stuck."""
    world, alice, broker = talk
    alice.answers = False
    hold(alice, "inactive")
    broker.move("10.0.4.1")
    world.run(0.1)
    offered = [sent.message.body for sent in world.sent("INVITE", broker)][-1]
    assert direction_of(SessionDescription.parse(offered).media[0]) == "sendrecv"


def test_media_that_are_held_keep_their_order(world: World) -> None:
    """The agreed lines keep our own order, in any direction."""
    peer = Scripted(world)
    bob = world.phone("bob", "10.0.1.1", properties={"any_media": True})
    first, second = media_at(peer.address, 1), MediaDescription(address=peer.address[0], port=2, media="audio")
    body = sdp(with_direction(first, "sendonly"), second)
    assert peer.asks(bob, asking("INVITE", 1, body=body)).status == 200
    agreed = bob.session("scripted").remote_media
    assert agreed is not None
    assert (agreed.port, direction_of(agreed)) == (1, "sendonly")
