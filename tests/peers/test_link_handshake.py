"""Offers and answers between servers: format, MACs and keys (SPEC J-12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import RemoteProtocolError
from wanderbus.peers.handshake import LinkKeys, decode_handshake, is_handshake
from wanderbus.peers.offers import LinkAnswer, LinkOffer
from wanderbus.rudp.endpoint import Endpoint
from wanderbus.rudp.keys import KeyPair

A, B, C = (KeyPair(bytes([number]) * 32) for number in (1, 2, 3))
FRESH_A, FRESH_B, FRESH_C = (KeyPair(bytes([number]) * 32) for number in (11, 12, 13))


def sides(
    domain: str = "d.example", opener: str = "a", acceptor: str = "b", ours: KeyPair = A, theirs: KeyPair = B
) -> tuple[LinkKeys, LinkKeys]:
    """Return the keys of the opener and those of the acceptor."""
    opening = LinkKeys(ours, theirs.public, domain=domain, opener=opener, acceptor=acceptor, opens=True)
    accepting = LinkKeys(theirs, ours.public, domain=domain, opener=opener, acceptor=acceptor, opens=False)
    return opening, accepting


def offered(keys: LinkKeys, fresh: KeyPair = FRESH_A, opener_id: int = 5) -> LinkOffer:
    offer = decode_handshake(keys.offer(opener_id, fresh.public))
    assert isinstance(offer, LinkOffer)
    return offer


def answered(keys: LinkKeys, offer: LinkOffer, acceptor_id: int = 7) -> LinkAnswer:
    answer = decode_handshake(keys.answer(offer, acceptor_id, FRESH_B.public))
    assert isinstance(answer, LinkAnswer)
    return answer


def test_both_sides_agree_on_an_offer_an_answer_and_the_secrets() -> None:
    opening, accepting = sides()
    offer = offered(opening)
    assert offer[:4] == ("a", "b", 5, FRESH_A.public)
    assert accepting.is_genuine_offer(offer)
    answer = answered(accepting, offer)
    assert answer[:3] == (5, 7, FRESH_B.public)
    assert opening.is_genuine_answer(answer, offer.data)
    ours = opening.secrets(FRESH_A, FRESH_B.public, offer.data, answer.data)
    theirs = accepting.secrets(FRESH_B, FRESH_A.public, offer.data, answer.data)
    assert (ours.sending, ours.receiving) == (theirs.receiving, theirs.sending)
    assert ours.sending != ours.receiving


def test_an_answer_is_shorter_than_its_offer() -> None:
    opening, accepting = sides()
    offer = offered(opening)
    assert len(accepting.answer(offer, 7, FRESH_B.public)) < len(offer.data)


@pytest.mark.parametrize(
    "other",
    [
        lambda: sides(domain="e.example"),
        lambda: sides(opener="b", acceptor="a"),
        lambda: sides(opener="b", acceptor="a", ours=B, theirs=A),
        lambda: sides(acceptor="c"),
        lambda: sides(ours=C),
        lambda: sides(theirs=C),
    ],
)
def test_messages_of_another_domain_direction_pair_or_key_are_not_genuine(
    other: Callable[[], tuple[LinkKeys, LinkKeys]],
) -> None:
    (opening, accepting), (other_opening, other_accepting) = sides(), other()
    offer = offered(opening)
    assert not accepting.is_genuine_offer(offered(other_opening))
    assert not opening.is_genuine_answer(answered(other_accepting, offer), offer.data)


def test_an_offer_is_no_answer_and_an_answer_is_bound_to_its_offer() -> None:
    opening, accepting = sides()
    first, second = offered(opening), offered(opening, FRESH_C)
    answer = answered(accepting, first)
    assert not opening.is_genuine_answer(answer, second.data)
    with_key_of_offer = LinkAnswer(5, 7, FRESH_B.public, opening.offer(5, FRESH_B.public))
    assert not opening.is_genuine_answer(with_key_of_offer, first.data)


def test_secrets_depend_on_the_fresh_keys_the_static_keys_and_both_datagrams() -> None:
    opening, _ = sides()
    other, _ = sides(theirs=C)
    secrets = opening.secrets(FRESH_A, FRESH_B.public, b"offer", b"answer")
    for different in (
        opening.secrets(FRESH_C, FRESH_B.public, b"offer", b"answer"),
        opening.secrets(FRESH_A, FRESH_C.public, b"offer", b"answer"),
        opening.secrets(FRESH_A, FRESH_B.public, b"OFFER", b"answer"),
        opening.secrets(FRESH_A, FRESH_B.public, b"offer", b"ANSWER"),
        other.secrets(FRESH_A, FRESH_B.public, b"offer", b"answer"),
    ):
        assert (different.sending, different.receiving) != (secrets.sending, secrets.receiving)


@given(st.integers(min_value=0), st.integers(1, 255), st.booleans())
def test_a_changed_byte_makes_a_datagram_malformed_or_not_genuine(place: int, change: int, is_offer: bool) -> None:
    opening, accepting = sides()
    offer = offered(opening)
    changed = bytearray(offer.data if is_offer else accepting.answer(offer, 7, FRESH_B.public))
    changed[place % len(changed)] ^= change
    try:
        message = decode_handshake(bytes(changed))
    except RemoteProtocolError:
        return
    if isinstance(message, LinkOffer):
        assert not accepting.is_genuine_offer(message)
    else:
        assert not opening.is_genuine_answer(message, offer.data)


@given(st.binary(max_size=40).map(lambda rest: bytes(8) + rest) | st.binary(max_size=200).map(lambda r: bytes(8) + r))
def test_other_bytes_are_malformed(data: bytes) -> None:
    try:
        message = decode_handshake(data)
    except RemoteProtocolError:
        return
    assert isinstance(message, LinkOffer | LinkAnswer)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_cut_offer_is_malformed(cut: int) -> None:
    data = sides()[0].offer(5, FRESH_A.public)
    for shorter in (data[:-cut], data[: len(data) // cut - 1]):
        with pytest.raises(RemoteProtocolError):
            decode_handshake(shorter)


def test_names_with_a_wrong_length_or_encoding_are_malformed() -> None:
    data = sides()[0].offer(5, FRESH_A.public)
    for names in (b"", b"\x00\x01b", b"\x01a\x00", b"\x01a\x01b\x00", b"\x01a\x02b", b"\x01\xff\x01b", b"\x05"):
        with pytest.raises(RemoteProtocolError):
            decode_handshake(data[:57] + names + data[-32:])


def test_a_handshake_begins_with_the_id_that_no_connection_has() -> None:
    opening, accepting = sides()
    offer = offered(opening)
    assert is_handshake(offer.data)
    assert is_handshake(answered(accepting, offer).data)

    class Zeros:
        """Source of an id 0, then of others."""

        count = 0

        def token(self, n_bytes: int) -> bytes:
            self.count += 1
            return bytes(n_bytes) if self.count == 1 else b"\x02" * n_bytes

        def uniform(self, low: float, high: float) -> float:
            return low

    assert Endpoint(Zeros()).allocate() > 0


def test_a_name_has_1_to_255_bytes() -> None:
    for name in ("", "ä" * 128):
        with pytest.raises(ValueError, match=r"bytes \(expected 1 to 255\)"):
            sides(domain=name)
    with pytest.raises(RemoteProtocolError):
        LinkKeys(A, bytes(32), domain="d", opener="a", acceptor="b", opens=True)
