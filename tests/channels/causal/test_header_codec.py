"""Headers on a link decode to themselves, and damaged ones are refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.channels.causal.header import Header, HeaderEntry, bitmap, members
from wanderbus.channels.causal.header_codec import HeaderDecoder, HeaderEncoder
from wanderbus.errors import RemoteProtocolError

origins = st.tuples(st.integers(0, 60), st.integers(1, 300))
numbers = st.integers(1, 2**40)
bitmaps = st.integers(1, 2**60)

WHOLE = HeaderEncoder().encode(Header((4, 2), 9, ((1, 7), (9, 8)), (HeaderEntry((7, 3), 5, bitmap([1, 9])),), 6))
"""A header without errors."""


@st.composite
def entries(draw: st.DrawFn) -> HeaderEntry:
    origin = draw(origins)
    return HeaderEntry(origin, draw(numbers), draw(bitmaps) & ~(1 << origin[0]))


@st.composite
def headers(draw: st.DrawFn) -> Header:
    number = draw(numbers)
    befores = draw(st.dictionaries(st.integers(0, 60), st.integers(0, number - 1), min_size=1))
    listed = draw(st.lists(entries(), max_size=6))
    lagging = draw(st.just(0) | bitmaps)
    settled = draw(st.integers(0, number - 1))
    return Header(draw(origins), number, tuple(sorted(befores.items())), in_order(listed), settled, lagging)


def in_order(unordered: Iterable[HeaderEntry]) -> tuple[HeaderEntry, ...]:
    return tuple(sorted(unordered, key=lambda entry: (entry.origin, entry.number)))


@given(st.lists(headers(), max_size=5))
def test_headers_of_a_link_come_out_as_they_went_in(sent: list[Header]) -> None:
    """Numbers rise on a link while it has one origin."""
    sent = sorted({header.dot: header for header in sent}.values(), key=lambda header: header.dot)
    encoder, decoder = HeaderEncoder(), HeaderDecoder()
    assert [decoder.decode(encoder.encode(header)) for header in sent] == sent


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    try:
        header = HeaderDecoder().decode(data)
    except RemoteProtocolError:
        return
    assert header.number > 0
    assert all(0 <= before <= header.number for _, before in header.befores)


@pytest.mark.parametrize("data", [b"", b"\x00" * 9, b"\xff" * 64, WHOLE[:-1], WHOLE + b"\x00"])
def test_a_damaged_header_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="causal header"):
        HeaderDecoder().decode(data)


def test_the_second_header_of_a_link_is_shorter() -> None:
    """Ten servers, long-lived: numbers are relative to those before."""
    entry = HeaderEntry((7, 3), 5_000_000, bitmap([1, 9]))
    first = Header((4, 2), 9_000_000, ((1, 8_999_990), (9, 8_999_999)), (entry,), 8_999_990)
    second = Header((4, 2), 9_000_004, ((1, 9_000_000), (9, 9_000_000)), (entry,), 9_000_000)
    encoder = HeaderEncoder()
    assert len(encoder.encode(first)) > 15
    assert len(encoder.encode(second)) == 7


@given(st.sets(st.integers(0, 200)))
def test_a_bitmap_names_its_members(servers: set[int]) -> None:
    assert list(members(bitmap(servers))) == sorted(servers)
