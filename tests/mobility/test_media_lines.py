"""Any number of media lines, made from plain parameters, changed at runtime (RFC 3264; SPEC C-16, C-17, C-18)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mobility.world import Phone, Talk, World, settled
from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.mobility.messages import (
    AcceptOffer,
    ChangeMedia,
    CreateSession,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    UpdateSession,
)
from wanderbus.mobility.session.offer_answer import (
    agreed_media,
    answer_to,
    fits,
    joined,
    laid_out,
    lines_of,
    media_at,
    relocated,
)
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription

ALICE, BOB = "10.0.2.1", "10.0.1.1"


def three_at(host: str) -> tuple[MediaDescription, ...]:
    """Return chat over TCP, voice, and a data channel."""
    return (
        media_at((host, 2855), "TCP/MSRP", media="message", media_format="*"),
        media_at((host, 4000), "RTP/AVP", media="audio", media_format="0"),
        media_at((host, 40_000)),
    )


@pytest.fixture
def pair(world: World) -> tuple[Phone, Phone]:
    """Two applications that accept any media; bob's owner answers when the test does."""
    options = {"properties": {"any_media": True}}
    alice, bob = world.phone("alice", ALICE, **options), world.phone("bob", BOB, **options)
    bob.answers = False
    world.run(1.0)
    return alice, bob


def call(world: World, pair: tuple[Phone, Phone], offer: MediaDescription, answer: MediaDescription) -> None:
    alice, bob = pair
    alice.give(CreateSession("call", "bob@example.org", offer))
    world.run(0.5)
    bob.give(AcceptOffer("call", answer))
    world.run(0.5)


def ports(world: World, what: str, source: Phone) -> list[int]:
    """Return the ports of the last description of one kind from ``source``."""
    body = world.sent(what, source)[-1].message.body
    return [line.port for line in SessionDescription.parse(body).media]


@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
def test_c17_a_description_from_plain_parameters_parses_back(host: str, protocol: str) -> None:
    media = media_at((host, 5000), protocol)
    description = SessionDescription("alice", 1, 1, host, (media,))
    assert SessionDescription.parse(description.encode()) == description
    assert (media.address, media.port, media.protocol) == (host, 5000, protocol)


@pytest.mark.parametrize(
    ("address", "protocol"), [((ALICE, 0), "UDP"), ((ALICE, 65_536), "UDP"), (("", 1), "UDP"), ((ALICE, 1), "")]
)
def test_c17_media_that_sdp_cannot_describe(address: tuple[str, int], protocol: str) -> None:
    with pytest.raises(LocalProtocolError):
        media_at(address, protocol)


def test_c16_three_media_are_offered_and_taken(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    offer, answer = joined(three_at(ALICE)), joined(three_at(BOB))
    call(world, pair, offer, answer)
    assert bob.all_of(SessionOffered)[0].media == offer
    assert bob.all_of(SessionEstablished)[0].media == offer
    assert alice.all_of(SessionEstablished)[0].media == answer
    assert (alice.session().local_media, alice.session().remote_media) == (offer, answer)


def test_an_answer_is_in_the_order_of_its_offer_and_reported_in_ours(world: World, pair: tuple[Phone, Phone]) -> None:
    chat, voice, data = three_at(BOB)
    call(world, pair, joined(three_at(ALICE)), joined((data, voice, chat)))
    assert ports(world, "200 INVITE", pair[1]) == [2855, 4000, 40_000]
    established = pair[1].all_of(SessionEstablished)[0]
    assert [line.port for line in lines_of(established.media)] == [40_000, 4000, 2855]


def test_rfc3264_6_unwanted_media_are_declined_in_their_slot(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    chat, _, data = three_at(BOB)
    call(world, pair, joined(three_at(ALICE)), joined((data, chat)))
    assert ports(world, "200 INVITE", bob) == [2855, 0, 40_000]
    assert alice.all_of(SessionEstablished)[0].media == joined((chat, data))


def test_rfc3264_8_a_later_offer_of_the_callee_keeps_every_line(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    data = three_at(BOB)[2]
    call(world, pair, joined(three_at(ALICE)), data)
    bob.give(UpdateSession("call", msgspec.structs.replace(data, port=41_000)))
    world.run(0.1)
    assert ports(world, "INVITE", bob) == [0, 0, 41_000]
    alice.give(AcceptOffer("call", three_at(ALICE)[2]))
    world.run(0.5)
    assert ports(world, "200 INVITE", alice) == [0, 0, 40_000]
    assert bob.session().remote_media == three_at(ALICE)[2]


def test_rfc3264_8_1_a_line_may_be_added_and_one_given_up(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    chat, voice, data = three_at(ALICE)
    call(world, pair, joined((chat, data)), joined((three_at(BOB)[0], three_at(BOB)[2])))
    alice.give(UpdateSession("call", joined((data, voice))))
    world.run(0.1)
    assert ports(world, "INVITE", alice) == [0, 40_000, 4000]
    bob.give(AcceptOffer("call", joined(three_at(BOB))))
    world.run(0.5)
    assert ports(world, "200 INVITE", bob) == [0, 40_000, 4000]
    assert bob.session().remote_media == joined((voice, data)), "in the order of his own lines"


def test_an_answer_with_none_of_the_offered_media_refuses(world: World, pair: tuple[Phone, Phone]) -> None:
    chat, voice, _ = three_at(BOB)
    call(world, pair, joined((three_at(ALICE)[0],)), joined((voice,)))
    assert [report.status for report in pair[0].all_of(SessionFailed)] == [488]
    assert pair[1].agent.sessions == {}
    assert fits(chat, three_at(ALICE)[0])


def test_c18_a_new_listening_port_is_announced_in_every_session(talk: Talk) -> None:
    world, alice, broker = talk
    alice.give(CreateSession("second", "broker@example.org", media_at((ALICE, 40_000))))
    world.run(1.0)
    alice.give(ChangeMedia(media_at((ALICE, 45_000))))
    world.run(1.0)
    assert [broker.session(id).remote_media for id in ("call", "second")] == [media_at((ALICE, 45_000))] * 2
    assert settled(alice, broker)


def test_c18_a_change_while_the_invite_is_unanswered_follows_its_answer(
    world: World, pair: tuple[Phone, Phone]
) -> None:
    """RFC 3261 14.1: no second INVITE beside the first."""
    alice, bob = pair
    alice.give(CreateSession("call", "bob@example.org", media_at((ALICE, 40_000))))
    world.run(0.5)
    alice.give(ChangeMedia(media_at((ALICE, 45_000))))
    world.run(0.5)
    bob.give(AcceptOffer("call", media_at((BOB, 40_000))))
    world.run(0.5)
    assert len(world.sent("200 INVITE", bob)) == 1
    bob.give(AcceptOffer("call", media_at((BOB, 40_000))))
    world.run(0.5)
    assert bob.session().remote_media == media_at((ALICE, 45_000))


def test_c16_a_move_takes_every_line_along(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    offer = joined(three_at(ALICE))
    call(world, pair, offer, joined(three_at(BOB)))
    alice.move("10.0.3.1")
    alice.give(UpdateSession("call", relocated(offer, ALICE, "10.0.3.1")))
    bob.answers = False
    world.run(0.1)
    bob.give(AcceptOffer("call", joined(three_at(BOB))))
    world.run(1.0)
    assert bob.session().remote_media == joined(three_at("10.0.3.1"))


LINES = st.lists(st.sampled_from([*three_at(ALICE), media_at((ALICE, 7))]), min_size=1, max_size=5).map(tuple)
SLOTS = st.lists(st.sampled_from([*three_at(BOB), msgspec.structs.replace(media_at((BOB, 7)), port=0)]), max_size=5)


@given(SLOTS, LINES)
def test_an_offer_keeps_the_slots_without_repetition(
    slots: list[MediaDescription], wanted: tuple[MediaDescription, ...]
) -> None:
    offer = laid_out(slots, joined(wanted))
    assert len(offer) >= len(slots)
    assert all(fits(line, slot) for line, slot in zip(offer, slots, strict=False))
    assert sorted(map(repr, (line for line in offer if line.port))) == sorted(map(repr, wanted))


@given(SLOTS.filter(bool), LINES)
def test_an_answer_uses_only_what_is_offered(
    offered: list[MediaDescription], wanted: tuple[MediaDescription, ...]
) -> None:
    offer = SessionDescription("-", 1, 1, BOB, tuple(offered))
    if not any(line.port and fits(ours, line) for line in offered for ours in wanted):
        with pytest.raises(SIPParseError):
            answer_to(offer, joined(wanted))
        return
    answer = answer_to(offer, joined(wanted))
    assert len(answer) == len(offered)
    assert all(theirs.port and fits(ours, theirs) for ours, theirs in zip(answer, offered, strict=True) if ours.port)
    assert set(lines_of(agreed_media(answer, offer.media, joined(wanted)))) <= set(offered)
