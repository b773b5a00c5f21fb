"""One stream: addresses of its parties, trusted sources, and refused datagrams (DESIGN 6.6)."""

from __future__ import annotations

import pytest

from tests.relay.desk import A_HOME, A_ID, B_HOME, B_ID, Desk, packet, sdp
from wanderbus.machine import Address
from wanderbus.relay import Side

NAT, STRANGER = ("203.0.113.1", 61_000), ("203.0.113.66", 6_666)
RESET, HELLO = 2, 4


def pair(a: str = "", b: str = "", **more: object) -> tuple[Side, Side]:
    return Desk(**more).call(a, b)


def test_datagrams_go_both_ways_between_the_addresses_of_sdp() -> None:
    a, b = pair()
    assert a.take(A_HOME, b"any bytes", 1.0) == B_HOME
    assert b.take(B_HOME, b"any bytes", 1.0) == A_HOME
    assert (a.figures.datagrams, a.figures.bytes, a.figures.learnt) == (1, 9, 0)


def test_a_new_source_is_taken_for_the_id_that_the_other_side_named() -> None:
    a, b = pair()
    assert a.take(NAT, packet(B_ID), 1.0) == B_HOME
    assert b.take(B_HOME, packet(A_ID), 1.0) == NAT
    assert a.figures.learnt == 1
    assert a.take(NAT, b"known now", 1.0) == B_HOME


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        packet(A_ID),
        packet(B_ID + 1),
        B_ID.to_bytes(8, "big")[:7],
        b"x" + packet(B_ID),
        bytes(8) + packet(B_ID),
    ],
)
def test_a_stranger_is_dropped_and_counted(data: bytes) -> None:
    a, b = pair()
    assert a.take(STRANGER, data, 1.0) is None
    assert (a.figures.unknown_source, a.figures.datagrams, a.figures.learnt) == (1, 0, 0)
    assert b.take(B_HOME, packet(A_ID), 1.0) == A_HOME


def test_the_way_to_a_party_stays_when_strangers_shout() -> None:
    a, b = pair()
    a.take(NAT, packet(B_ID), 1.0)
    for number in range(100):
        a.take(("203.0.113.66", number + 1), number.to_bytes(8, "big") * 4, 1.0)
    assert b.take(B_HOME, b"x", 1.0) == NAT
    assert a.figures.unknown_source == 100


def test_before_the_answer_nobody_is_taken_for_the_called_side() -> None:
    """The offerer knows the id too, and may have named the address of a third party, which it could then send to."""
    desk = Desk()
    desk.offer(sdp(A_HOME, A_ID))
    b = next(side for side in desk.open.values() if side.announced is None)
    assert b.take(NAT, packet(A_ID), 1.0) is None
    assert b.other.take(A_HOME, b"x", 1.0) is None
    desk.answer(sdp(B_HOME, B_ID))
    assert b.take(NAT, packet(A_ID), 1.0) == A_HOME


def test_without_an_address_of_the_other_side_there_is_nowhere_to_send() -> None:
    desk = Desk()
    desk.offer(sdp(A_HOME, A_ID))
    a = next(side for side in desk.open.values() if side.announced is not None)
    assert a.take(A_HOME, b"x", 1.0) is None
    assert a.figures.nowhere == 1


def test_a_new_offer_with_a_new_address_is_believed_at_once() -> None:
    """DESIGN 6.1: the broker may send to the new address as soon as the re-INVITE is accepted."""
    desk = Desk()
    _, b = desk.call()
    desk.offer(sdp(("192.0.2.11", 4_001), A_ID, generation=1), to_tag="b")
    assert b.take(B_HOME, packet(A_ID), 1.0) == ("192.0.2.11", 4_001)


def test_a_new_offer_of_the_same_address_leaves_what_was_learnt() -> None:
    """A party behind NAT repeats the same private address, for example in a session refresh."""
    desk = Desk()
    a, b = desk.call()
    a.take(NAT, packet(B_ID), 1.0)
    desk.offer(sdp(A_HOME, A_ID, generation=1), to_tag="b")
    assert b.take(B_HOME, packet(A_ID), 1.0) == NAT


def test_datagrams_sent_before_an_announced_move_do_not_redirect() -> None:
    """DESIGN 6.1: an old path does not override a new one; its datagrams are still forwarded."""
    desk = Desk()
    a, b = desk.call()
    desk.offer(sdp(("192.0.2.11", 4_001), A_ID, generation=1), to_tag="b")
    assert a.take(A_HOME, packet(B_ID, generation=0), 1.0) == B_HOME
    assert b.take(B_HOME, packet(A_ID), 1.0) == ("192.0.2.11", 4_001)
    assert a.take(NAT, packet(B_ID, generation=1), 1.0) == B_HOME
    assert b.take(B_HOME, packet(A_ID), 1.0) == NAT


@pytest.mark.parametrize(
    ("said", "packets", "moves"),
    [(0, 0, True), (1, 0, False), (1, 1, True), (1, 2, True), (0x10000, 0, True), (0x10000, 0xFFFF, False)],
)
def test_generations_are_compared_in_their_16_bits(said: int, packets: int, moves: bool) -> None:
    a, b = pair(sdp(A_HOME, A_ID, generation=said))
    assert a.take(NAT, packet(B_ID, generation=packets), 1.0) == B_HOME
    assert b.take(B_HOME, b"x", 1.0) == (NAT if moves else A_HOME)


def test_a_reset_has_no_generation() -> None:
    a, b = pair(sdp(A_HOME, A_ID, generation=9))
    assert a.take(NAT, packet(B_ID, kind=RESET), 1.0) == B_HOME
    assert b.take(B_HOME, b"x", 1.0) == NAT


def test_the_id_before_is_remembered_and_no_older_one() -> None:
    """An offer with a fresh id may be declined; then the previous connection continues."""
    desk = Desk()
    a, _ = desk.call()
    for fresh in (B_ID + 1, B_ID + 2):
        desk.offer(sdp(B_HOME, fresh), tag="b", to_tag="a")
    assert a.take(("203.0.113.1", 1), packet(B_ID + 2), 1.0) == B_HOME
    assert a.take(("203.0.113.1", 2), packet(B_ID + 1), 1.0) == B_HOME
    assert a.take(("203.0.113.1", 3), packet(B_ID), 1.0) is None


def test_a_repeated_id_does_not_replace_the_other() -> None:
    desk = Desk()
    a, _ = desk.call()
    desk.offer(sdp(B_HOME, B_ID + 1), tag="b", to_tag="a")
    for _ in range(3):
        desk.offer(sdp(B_HOME, B_ID + 1), tag="b", to_tag="a")
    assert a.take(NAT, packet(B_ID), 1.0) == B_HOME


def test_the_first_source_after_an_offer_without_ids_is_accepted() -> None:
    desk = Desk()
    a, b = desk.call(sdp(A_HOME, None), sdp(B_HOME, None))
    assert a.take(NAT, b"rtp", 1.0) == B_HOME
    assert a.take(STRANGER, b"rtp", 1.0) is None
    assert b.take(B_HOME, b"rtp", 1.0) == NAT
    desk.offer(sdp(A_HOME, None), to_tag="b")
    assert a.take(("203.0.113.2", 62_000), b"rtp", 1.0) == B_HOME
    assert a.take(STRANGER, b"rtp", 1.0) is None


@pytest.mark.parametrize("address", [("192.0.2.10", 0), ("0.0.0.0", 4_000), ("224.0.0.1", 4_000), ("127.0.0.1", 4_000)])
def test_an_address_of_nobody_or_of_the_relays_own_host_is_not_sent_to(address: Address) -> None:
    a, _ = pair()
    text = sdp(A_HOME, A_ID).replace("192.0.2.10", address[0])
    _, b = pair(text) if address[1] else (a, a.other)
    if address[1]:
        assert b.take(B_HOME, b"x", 1.0) is None
        assert b.figures.nowhere == 1


IN_DISGUISE = [
    *(f"::ffff:{host}" for host in ("127.0.0.1", "224.0.0.1", "169.254.1.1", "255.255.255.255", "0.0.0.0")),
    "64:ff9b::127.0.0.1",
]
"""Addresses of IPv4 as IPv6 writes them."""


@pytest.mark.parametrize(
    "host", ["169.254.1.1", "255.255.255.255", "::", "::1", "ff02::1", "fe80::1", "host.example", *IN_DISGUISE]
)
def test_other_addresses_that_are_not_sent_to(host: str) -> None:
    family = "IP6" if ":" in host else "IP4"
    _, b = pair(sdp(A_HOME, A_ID).replace("IN IP4 192.0.2.10", f"IN {family} {host}"))
    assert b.take(B_HOME, b"x", 1.0) is None
    assert (b.other.announced, b.figures.nowhere) == (None, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "192.168.1.1"])
def test_loopback_is_for_those_who_allow_it_and_private_networks_for_all(host: str) -> None:
    text = sdp(A_HOME, A_ID).replace("192.0.2.10", host)
    for loopback in (True, False):
        _, b = pair(text, loopback=loopback)
        expected = (host, 4_000) if loopback or host != "127.0.0.1" else None
        assert b.take(B_HOME, b"x", 1.0) == expected


def test_datagrams_beyond_the_rate_are_dropped_and_counted() -> None:
    a, b = pair(limits={"stream_datagrams_per_s": 100})
    assert [a.take(A_HOME, b"x", 1.0) for _ in range(12)].count(B_HOME) == 10
    assert a.figures.over_rate == 2
    assert a.unreported() == (2, 0)
    assert a.take(A_HOME, b"x", 1.05) is None
    assert (a.unreported(), a.unreported()) == ((1, 0), (0, 0))
    assert b.take(B_HOME, b"x", 1.0) == A_HOME, "each direction has its own"
    assert a.take(A_HOME, b"x", 1.11) == B_HOME


def test_bytes_beyond_the_rate_are_dropped_and_counted() -> None:
    a, _ = pair(limits={"stream_bytes_per_s": 10_000})
    assert a.take(A_HOME, bytes(600), 1.0) == B_HOME
    assert a.take(A_HOME, bytes(600), 1.0) is None
    assert (a.figures.over_rate, a.figures.bytes) == (1, 600)
    assert a.take(A_HOME, bytes(600), 1.2) == B_HOME


def test_strangers_do_not_use_up_the_rate() -> None:
    a, _ = pair(limits={"stream_datagrams_per_s": 10})
    for _ in range(50):
        a.take(STRANGER, b"x", 1.0)
    assert a.take(A_HOME, b"x", 1.0) == B_HOME


def test_every_datagram_is_forwarded_or_counted_as_dropped() -> None:
    a, _ = pair(limits={"stream_datagrams_per_s": 50})
    for number in range(40):
        a.take((A_HOME, NAT, STRANGER)[number % 3], packet(B_ID) if number % 5 else b"x", 1.0)
    figures = a.figures
    assert figures.datagrams + figures.unknown_source + figures.over_rate + figures.nowhere == 40
    assert min(figures.datagrams, figures.unknown_source, figures.over_rate) > 0
