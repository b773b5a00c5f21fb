"""Messages out of a stream (RFC 3261 18.3) and the keep-alives between them (RFC 5626 4.4.1)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import SIPParseError
from wanderbus.limits import SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.message.framing import PING, PONG, StreamFramer, content_length
from wanderbus.sip.message.message import Fed, Request, encode_message, parse_message

HEADERS = (
    ("Via", "SIP/2.0/TCP 192.0.2.1;branch=z9hG4bKone"),
    ("From", "<sip:alice@example.com>;tag=a"),
    ("To", "<sip:bob@example.com>"),
    ("Call-ID", "call"),
    ("CSeq", "1 MESSAGE"),
)


def message(body: bytes = b"hello") -> bytes:
    return encode_message(Request("MESSAGE", "sip:bob@example.com", HEADERS, body))


def fed(*pieces: bytes, opened_here: bool = False) -> Fed:
    """All messages, pings and errors that the pieces give together."""
    framer = StreamFramer(opened_here=opened_here)
    parts = [framer.feed(piece) for piece in pieces]
    return Fed(
        tuple(one for part in parts for one in part.messages),
        sum(part.pings for part in parts),
        sum(part.pongs for part in parts),
        next((part.error for part in parts if part.error), None),
    )


def test_rfc3261_18_3_messages_end_by_content_length() -> None:
    first, second = message(b"one"), message(b"")
    assert fed(first + second + message(b"three")[:-1]).messages == (first, second)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1_000])
def test_pieces_make_no_difference(step: int) -> None:
    stream = PING + message(b"\r\n\r\n") + message(b"x" * 500) + PING + message()
    pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
    found = fed(*pieces)
    assert found == fed(stream)
    assert (len(found.messages), found.pings) == (3, 2)


@pytest.mark.parametrize(
    "field", ["Content-Length: 5", "l: 5", "content-length:5", "Content-Length:\r\n 5", "Content-Length : 5"]
)
def test_every_way_to_write_content_length(field: str) -> None:
    """RFC 3261 7.3.1 and 7.3.3, RFC 4475 3.1.1.1: the framer reads it as the parser does."""
    data = message().replace(b"Content-Length: 5", field.encode())
    assert fed(data + b"rest").messages == (data,)
    assert parse_message(data).body == b"hello"


def test_bare_line_feeds_end_a_head_as_in_a_datagram() -> None:
    data = message().replace(b"\r\n", b"\n")
    assert fed(data).messages == (data,)


@pytest.mark.parametrize(
    "data",
    [
        message().replace(b"Content-Length: 5\r\n", b""),
        message().replace(b"Content-Length: 5", b"Content-Length: 5\r\nl: 5"),
        message().replace(b"Content-Length: 5", b"Content-Length: -5"),
        message().replace(b"Content-Length: 5", b"Content-Length: 65536"),
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"no header\r\n\r\n",
    ],
)
def test_a_framing_error_is_permanent(data: bytes) -> None:
    """RFC 3261 20.14: without a valid Content-Length the start of the next message is unknown."""
    framer = StreamFramer(opened_here=False)
    found = framer.feed(message() + data)
    assert found.messages == (message(),)
    assert isinstance(found.error, SIPParseError)
    assert framer.feed(message()) == Fed()


def test_a_head_without_end_is_given_up_at_the_limit() -> None:
    framer = StreamFramer(opened_here=False)
    assert framer.feed(b"A" * SIP_MESSAGE_BYTES_MAX).error is None
    error = framer.feed(b"A").error
    assert error is not None
    assert error.status == 513


def test_head_and_body_share_the_limit() -> None:
    framer = StreamFramer(opened_here=False, message_bytes_max=len(message()))
    assert framer.feed(message()).messages == (message(),)
    assert framer.feed(message(b"hello!")[:-6]).error is not None


def test_rfc5626_4_4_1_double_crlf_is_a_ping_where_the_other_side_opened() -> None:
    assert fed(PING).pings == 1
    assert fed(b"\r\n", b"\r\n").pings == 1
    assert fed(b"\r", b"\n\r", b"\n").pings == 1
    assert fed(PING * 3).pings == 3
    assert fed(PING, opened_here=True) == Fed(pongs=2)


def test_rfc5626_4_4_1_a_single_crlf_is_a_pong_where_we_opened() -> None:
    assert fed(PONG, opened_here=True) == Fed(pongs=1)
    assert fed(PONG + message() + PONG, opened_here=True) == Fed((message(),), pongs=2)


def test_rfc3261_7_5_line_breaks_before_a_message_are_no_ping() -> None:
    assert fed(b"\r\n" + message()) == Fed((message(),))
    assert fed(b"\n\n" + message()) == Fed((message(),))


def test_within_message_is_true_for_an_incomplete_message() -> None:
    framer = StreamFramer(opened_here=False)
    found = []
    for piece in (b"", b"\r\n", message()[:10], message()[10:]):
        framer.feed(piece)
        found.append(framer.within_message)
    assert found == [False, False, True, False]


def test_content_length_raises_only_its_error() -> None:
    assert content_length(b"X y\r\nl: 7\r\n\r\n") == 7
    with pytest.raises(SIPParseError):
        content_length(b"X y\r\nl: 8\r\n\r\n", 7)


@given(st.lists(st.binary(max_size=40), max_size=20), st.booleans())
def test_any_bytes_give_messages_or_an_error(pieces: list[bytes], opened_here: bool) -> None:
    found = fed(*pieces, opened_here=opened_here)
    assert sum(map(len, found.messages)) <= sum(map(len, pieces))


@given(st.lists(st.binary(max_size=200), max_size=5), st.data())
def test_every_message_comes_out_as_it_went_in(bodies: list[bytes], data: st.DataObject) -> None:
    """RFC 3261 18.3: at any cut of the stream into pieces."""
    sent = [message(body) for body in bodies]
    stream = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    found = fed(*(stream[a:b] for a, b in pairwise(edges)))
    assert list(found.messages) == sent
    assert found.error is None
