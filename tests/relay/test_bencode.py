"""Bencoding: encoded values are decoded the same, and invalid bytes raise its one error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import RemoteProtocolError
from wanderbus.relay.bencode import DEPTH_MAX, decode, encode

VALUES = st.recursive(
    st.text() | st.integers(-(10**18), 10**18),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_written_values_are_read_back_equal(value: object) -> None:
    assert decode(encode(value)) == value  # type: ignore[arg-type]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = decode(data)
    except RemoteProtocolError:
        return
    assert decode(encode(value)) == value


@given(st.binary(max_size=20))
def test_a_text_may_be_any_bytes(data: bytes) -> None:
    written = b"%d:%s" % (len(data), data)
    assert encode(decode(written)) == written


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"4:ping", "ping"),
        (b"0:", ""),
        (b"i-42e", -42),
        (b"i0e", 0),
        (b"le", []),
        (b"l4:pingi1ee", ["ping", 1]),
        (b"d7:command4:pinge", {"command": "ping"}),
        (b"d1:ai1e1:ai2ee", {"a": 2}),
    ],
)
def test_examples(data: bytes, value: object) -> None:
    assert decode(data) == value


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"4:pin",
            b"04:ping",
            b"-1:a",
            b"4ping",
            b"9" * 5_000 + b":a",
            b"99999999999:a",
            b"i1",
            b"ie",
            b"i01e",
            b"i-0e",
            b"i 1e",
        ),
        *(b"i1.5e", b"i" + b"9" * 5_000 + b"e", b"l", b"l4:ping", b"d", b"d1:ae", b"di1ei2ee", b"dlei1ee", b"e"),
        *(b"4:pingx", b"i1ee", b"x", b"\xff"),
    ],
)
def test_malformed_bencoding(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="bencoding"):
        decode(data)


def test_depth_is_bounded() -> None:
    assert decode(b"l" * DEPTH_MAX + b"e" * DEPTH_MAX)
    for depth in (DEPTH_MAX + 1, 60_000):
        with pytest.raises(RemoteProtocolError, match="deeper"):
            decode(b"l" * depth + b"e" * depth)
