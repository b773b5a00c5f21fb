"""One header line that cannot be read: the request is answered 400, which names it (RFC 3261 8.2, 16.3, 21.4.1)."""

from __future__ import annotations

import pytest

from tests.sip.transaction_world import ALICE, BOB, Clockwork, SeededRandom, arrival, make_request, wire
from wanderbus.machine import CloseStream, Output, SendDatagram, SendOnStream, StreamReceived
from wanderbus.sip.message.message import Response, encode_message, make_response, parse_message
from wanderbus.sip.transaction.message_editor import fitted
from wanderbus.sip.transaction.transaction_layer import TransactionLayer

VIA = "SIP/2.0/{} 192.0.2.1:5060;rport;branch=z9hG4bKone"
COPIED = ("From", "Call-ID", "CSeq")

LINES = {
    "no colon": (b"X-Broken nothing here", "X-Broken: not a header field"),
    "a space in the name": (b"Bad Name: value", "Bad: not a header field"),
    "a name of no token": (b"(comment): value", "a line: not a header field"),
    "no name": (b": value", "a line: not a header field"),
    "not UTF-8": (b"Subject: caf\xe9", "Subject: not UTF-8"),
    "a stray return": (b"Subject: a\rb", "Subject: a carriage return within the line"),
    "an open quote": (b'Contact: "alice <sip:alice@192.0.2.1>', "Contact: a quote or < is not closed"),
    "no address": (b"Record-Route: <>", "Record-Route: URI: no scheme"),
    "no number": (b"Expires: soon", "Expires: not a number"),
    "a list left open": (b'Supported: "timer', "Supported: a quote or < is not closed"),
    "given twice": (b"Max-Forwards: 69", "Max-Forwards is given more than once"),
    "a secret": (b"Authorization Digest username=alice", "Authorization: not a header field"),
}
lines = pytest.mark.parametrize(("line", "reason"), LINES.values(), ids=LINES.keys())
methods = pytest.mark.parametrize("method", ["OPTIONS", "INVITE", "REGISTER", "BYE", "CANCEL", "MESSAGE"])


def with_line(data: bytes, line: bytes) -> bytes:
    return data.replace(b"\r\nContent-Length", b"\r\n" + line + b"\r\nContent-Length")


def node() -> Clockwork:
    layer = TransactionLayer(SeededRandom(), transports=("UDP", "TCP"), local=BOB)
    return Clockwork(layer)


def on_stream(data: bytes, connection: int = 1) -> StreamReceived:
    return StreamReceived("sip", connection, ALICE, data)


def refusal(outputs: list[Output]) -> Response:
    """Return the one answer sent."""
    assert [type(output) for output in outputs if not isinstance(output, SendOnStream)] in ([], [SendDatagram])
    (answer,) = [parse_message(out.data) for out in outputs if isinstance(out, SendDatagram | SendOnStream)]
    assert isinstance(answer, Response)
    return answer


@lines
@methods
def test_a_request_over_udp_is_refused_with_the_name_of_the_line(method: str, line: bytes, reason: str) -> None:
    bob, request = node(), make_request(method)
    data = with_line(wire(request), line)
    answer = refusal(bob.step(arrival(data)))
    assert (answer.status, answer.reason) == (400, reason)
    assert [answer.header(name) for name in COPIED] == [request.header(name) for name in COPIED]
    assert answer.to.tag
    assert answer.via.branch == "z9hG4bKone"
    assert len(encode_message(answer)) <= len(data) + 20
    assert bob.layer.transaction_count == 0
    assert bob.layer.drops == {"unreadable": 1}


@lines
def test_a_request_over_a_stream_is_refused_and_the_stream_goes_on(line: bytes, reason: str) -> None:
    bob = node()
    answer = refusal(bob.step(on_stream(with_line(wire(make_request("OPTIONS"), VIA.format("TCP")), line))))
    assert (answer.status, answer.reason) == (400, reason)
    (report,) = bob.step(on_stream(wire(make_request("OPTIONS", number=2), VIA.format("TCP"))))
    assert not isinstance(report, CloseStream)


@pytest.mark.parametrize("line", [b"Content-Length 5", b"content-length\x0b: 5", b"l\xff: 5", b"L 5", b"\tl: 5\xff"])
def test_a_stream_ends_where_another_line_may_be_meant_as_its_length(line: bytes) -> None:
    """Another reader may cut the stream elsewhere."""
    data = wire(make_request("OPTIONS"), VIA.format("TCP"))
    bad = data.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)
    assert bytes(bad) != data
    outputs = node().step(on_stream(bad))
    assert [type(output) for output in outputs] == [CloseStream]


@lines
def test_an_ack_gets_no_answer(line: bytes, reason: str) -> None:
    bob = node()
    assert bob.step(arrival(with_line(wire(make_request("ACK")), line))) == []
    assert bob.step(on_stream(with_line(wire(make_request("ACK"), VIA.format("TCP")), line))) == []
    assert bob.layer.drops == {"unreadable": 2}


@lines
def test_a_response_is_dropped_and_counted(line: bytes, reason: str) -> None:
    bob = node()
    request = make_request("OPTIONS").with_first("Via", VIA.format("UDP"))
    response = encode_message(make_response(request, 200, headers=[("Max-Forwards", "70")]))
    assert bob.step(arrival(with_line(response, line))) == []
    assert bob.layer.drops == {"unreadable": 1}


def test_a_line_that_continues_a_bad_one_belongs_to_it() -> None:
    data = with_line(wire(make_request("OPTIONS")), b"X-Broken nothing\r\n  From: <sip:mallory@example.com>;tag=z")
    answer = refusal(node().step(arrival(data)))
    assert answer.header("From") == "<sip:alice@example.com>;tag=a"


def test_an_answer_with_too_little_room_leaves_the_reason_out_last() -> None:
    request = make_request("OPTIONS").with_first("Via", VIA.format("UDP"))
    refused = make_response(request, 400, "Contact: a quote is left open", headers=[("Allow", "OPTIONS")])
    room = len(encode_message(refused))
    reasons = [parse_message(cut).reason for n in range(room, 0, -1) if (cut := fitted(refused, n))]  # type: ignore[union-attr]
    assert sorted(set(reasons), key=reasons.index) == ["Contact: a quote is left open", ""]
