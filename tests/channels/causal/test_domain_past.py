"""Tests of the encoded causal past of an event across domains (SPEC K-06; decision 0175)."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.channels.causal.domain_past import (
    PAST_CAUSES_MAX,
    PAST_DOMAINS_MAX,
    Cause,
    DomainPast,
    decode_domain_past,
    encode_domain_past,
    restricted,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.limits import NUMBER_MAX, PAST_BYTES_MAX

DOMAINS = ("alpha", "beta", "gamma", "delta")
_names = st.sampled_from(DOMAINS)
_numbers = st.integers(0, NUMBER_MAX)
_causes = st.builds(
    lambda domain, server, incarnation, number, targets: Cause(f"{domain}/{server}", incarnation, number, targets),
    _names,
    st.text("ab1", min_size=1, max_size=4),
    _numbers,
    _numbers,
    st.frozensets(_names),
)


@given(st.frozensets(_names), st.lists(_causes, max_size=PAST_CAUSES_MAX))
def test_a_past_after_decoding(targets: frozenset[str], causes: list[Cause]) -> None:
    past = DomainPast("alpha", targets, tuple(causes))
    assert decode_domain_past(encode_domain_past(past, DOMAINS)) == past


@given(st.frozensets(_names))
def test_the_length_of_a_past_whatever_its_destinations_are(targets: frozenset[str]) -> None:
    lengths = {len(encode_domain_past(DomainPast("alpha", each), DOMAINS)) for each in (targets, frozenset[str]())}
    assert len(lengths) == 1


def test_the_bounds_of_a_past_that_keeps_its_newest_causes() -> None:
    everywhere = frozenset(DOMAINS)
    many = [Cause("alpha/a1", 1, number, everywhere) for number in range(2 * PAST_CAUSES_MAX)]
    found = decode_domain_past(encode_domain_past(DomainPast("alpha", everywhere, tuple(many)), DOMAINS))
    assert list(found.causes) == many[:PAST_CAUSES_MAX]
    long = [Cause(f"alpha/{number:0200}", 1, number, everywhere) for number in range(PAST_CAUSES_MAX)]
    data = encode_domain_past(DomainPast("alpha", everywhere, tuple(long)), DOMAINS)
    assert len(data) <= PAST_BYTES_MAX
    kept = decode_domain_past(data).causes
    assert kept
    assert list(kept) == long[: len(kept)]


def test_domains_beyond_the_bound() -> None:
    names = [f"d{number}" for number in range(PAST_DOMAINS_MAX + 1)]
    past = DomainPast("d0", frozenset(names), (Cause(f"{names[-1]}/s", 1, 1, frozenset({"d0"})),))
    found = decode_domain_past(encode_domain_past(past, names))
    assert found == DomainPast("d0", frozenset(names[:-1]), ())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93",
        msgspec.msgpack.encode([b"", ["alpha"], []]),
        msgspec.msgpack.encode([bytes(4), [], []]),
        msgspec.msgpack.encode([bytes(4), ["x"] * (PAST_DOMAINS_MAX + 1), []]),
        msgspec.msgpack.encode([bytes(4), ["alpha"], [[0, "a1", 1, 1, 1]] * (PAST_CAUSES_MAX + 1)]),
        msgspec.msgpack.encode([bytes(4), ["alpha"], [[0, "a1", -1, 1, 1]]]),
        msgspec.msgpack.encode([bytes(4), ["alpha"], [[0, "a1", 1, 1, 1 << PAST_DOMAINS_MAX]]]),
        msgspec.msgpack.encode([bytes(4), ["alpha"], [[PAST_DOMAINS_MAX, "a1", 1, 1, 1]]]),
    ],
)
def test_refusal_of_bytes_that_are_no_past(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a causal past of domains"):
        decode_domain_past(data)


@given(st.binary(max_size=60))
def test_decoding_of_anything(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_domain_past(data)


def test_causes_of_unknown_servers() -> None:
    data = msgspec.msgpack.encode([bytes(4), ["alpha"], [[7, "a1", 1, 1, 1], [0, "a/1", 1, 1, 1], [0, "a1", 1, 1, 6]]])
    assert decode_domain_past(data).causes == (Cause("alpha/a1", 1, 1, frozenset()),)


def test_belief_of_a_domain_in_the_past_of_another_one() -> None:
    causes = (
        Cause("alpha/a1", 1, 1, frozenset({"beta", "gamma", "delta"})),
        Cause("delta/d1", 1, 1, frozenset({"gamma"})),
        Cause("alpha/a1", 1, 2, frozenset({"delta"})),
    )
    sent = DomainPast("alpha", frozenset({"gamma", "delta"}), causes)
    found = restricted(sent, "beta", "gamma", {"alpha", "beta"})
    assert found.domain == "beta", "a domain speaks for itself alone"
    assert found.targets == {"gamma", "beta"}
    assert found.causes == (Cause("alpha/a1", 1, 1, frozenset({"beta", "gamma"})),)
