"""Datagrams of a domain's multicast group: only its servers can make and read them (SPEC J-12)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.peers.parts import MULTICAST_SOCKET
from wanderbus.simulation.domains.multicast_network import DrawnRandom

GROUP = "239.255.7.1", 5602
KEY = bytes(range(32))
SERVERS = ("s1", "s2", "s3")
PAYLOAD = b"a change of interest"


def group(server: str, seed: int = 1, **options: Any) -> MulticastGroup:
    given: dict[str, Any] = {"domain": "example.org", "servers": SERVERS} | options
    key = given.pop("hash_key", KEY)
    return MulticastGroup(GROUP, key, server=server, random=DrawnRandom(Random(seed)), **given)


@pytest.fixture
def sealed() -> bytes:
    return group("s1").seal(PAYLOAD).data


def test_every_other_server_opens_a_datagram_and_knows_its_sender(sealed: bytes) -> None:
    sent = group("s1").seal(PAYLOAD)
    assert (sent.socket, sent.destination) == (MULTICAST_SOCKET, GROUP)
    for name in ("s2", "s3"):
        other = group(name)
        assert other.open(sealed) == ("s1", PAYLOAD)
        assert other.dropped.total() == 0
    assert PAYLOAD not in sealed


def test_an_own_datagram_is_ignored(sealed: bytes) -> None:
    own = group("s1")
    assert own.open(sealed) is None
    assert own.dropped.total() == 0


@pytest.mark.parametrize(
    "options",
    [{"hash_key": bytes(32)}, {"domain": "example.net"}, {"servers": ("s1", "s2", "s4")}, {"servers": ("s1", "s2")}],
)
def test_a_datagram_of_another_domain_is_dropped(sealed: bytes, options: dict[str, Any]) -> None:
    other = group("s2", **options)
    assert other.open(sealed) is None
    assert other.dropped == {"forged": 1}


def test_a_datagram_with_any_other_bit_is_dropped(sealed: bytes) -> None:
    other = group("s2")
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        assert other.open(bytes(changed)) is None, bit
    assert other.open(sealed) == ("s1", PAYLOAD)
    assert other.dropped["forged"] > 8 * len(PAYLOAD)


def test_a_piece_of_a_datagram_is_dropped(sealed: bytes) -> None:
    other = group("s2")
    assert [other.open(sealed[:end]) for end in range(len(sealed))] == [None] * len(sealed)
    assert other.dropped["malformed"] == 27
    assert other.open(bytes([1, 0, 9]) + sealed[3:]) is None, "there is no server 9"


def test_a_server_that_starts_again_is_accepted_and_uses_another_key(sealed: bytes) -> None:
    other = group("s2")
    assert other.open(sealed) == ("s1", PAYLOAD)
    again = group("s1", 2).seal(PAYLOAD).data
    assert other.open(again) == ("s1", PAYLOAD)
    assert other.open(sealed) == ("s1", PAYLOAD), "a repeat opens again: the payload has to show that it is one"
    assert again[27:-16] != sealed[27:-16]


def test_no_two_senders_have_the_same_key(sealed: bytes) -> None:
    assert group("s2").seal(PAYLOAD).data[27:-16] != sealed[27:-16]


def test_no_two_datagrams_are_alike() -> None:
    own = group("s1")
    assert len({own.seal(PAYLOAD).data[19:] for _ in range(100)}) == 100
