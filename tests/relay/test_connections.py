"""TCP through the relay's machine: admission, owner and pace of a connection."""

from __future__ import annotations

import pytest

from tests.relay.desk import A_HOME, A_ID, B_ID, Desk, medium, sdp
from wanderbus.relay import Side
from wanderbus.tcp.frames import encode, encode_hello

AGENT, BROKER = (A_HOME[0], 9), ("192.0.2.20", 5_072)


def agreed(desk: Desk, protocol: str = "TCP") -> Side:
    """The agent opens the connection and the broker is connected to; return the agent's side."""
    shown = medium(desk.offer(sdp(AGENT, A_ID, protocol=protocol, setup="active"))["sdp"])
    assert (shown.port, shown.attribute("setup")) == (9, "active")
    shown = medium(desk.answer(sdp(BROKER, B_ID, protocol=protocol, setup="passive"))["sdp"])
    assert (shown.protocol, shown.attribute("setup")) == (protocol, "passive")
    return desk.open[shown.port]


@pytest.mark.parametrize("protocol", ["TCP", "TCP/TLS"])
def test_the_agent_connects_to_the_relay_and_the_relay_to_the_broker(protocol: str) -> None:
    desk = Desk()
    a = agreed(desk, protocol)
    assert (a.transport, a.target, len(desk.open)) == ("TCP", BROKER, 1)


def test_the_broker_may_offer_too() -> None:
    desk = Desk()
    shown = medium(desk.offer(sdp(BROKER, B_ID, protocol="TCP", setup="passive"))["sdp"])
    b_side_target = desk.open[shown.port]
    shown = medium(desk.answer(sdp(AGENT, A_ID, protocol="TCP", setup="active"))["sdp"])
    assert (shown.port, b_side_target.target) == (9, BROKER)
    assert list(desk.open.values()) == [b_side_target], "a port that nobody will connect to is closed again"


def test_the_relay_does_not_connect_to_the_active_side() -> None:
    desk = Desk()
    a = agreed(desk)
    assert a.other.target is None
    assert not a.other.admit("192.0.2.10")
    assert a.other.figures.refused == 1


def test_connections_are_bounded_and_those_of_one_host_more_so() -> None:
    a = agreed(Desk(limits={"connections_max": 3, "host_connections_max": 2}))
    assert [a.admit("192.0.2.10") for _ in range(3)] == [True, True, False]
    assert [a.admit(host) for host in ("203.0.113.1", "203.0.113.2")] == [True, False]
    a.leave("192.0.2.10")
    assert a.admit("203.0.113.2")
    assert a.figures.refused == 2


@pytest.mark.parametrize(
    ("opening", "judged"),
    [
        (encode_hello(0, B_ID, A_ID, bytes(16)), True),
        (encode_hello(0, B_ID, A_ID, bytes(16))[:21], True),
        (encode_hello(0, B_ID, A_ID, bytes(16))[:20], None),
        (b"", None),
        (encode_hello(0, A_ID, B_ID, bytes(16)), False),
        (encode(5, 0, B_ID.to_bytes(8, "big") + bytes(30)), False),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", False),
        (b"\x16\x03\x01" + bytes(40), False),
    ],
)
def test_a_connection_shows_by_its_first_frame_whose_it_is(opening: bytes, judged: bool | None) -> None:
    assert agreed(Desk()).judge(opening) is judged
    assert agreed(Desk(), "TCP/TLS").judge(opening) is True, "TLS shows nothing"


def test_addresses_identify_ends_without_ids() -> None:
    desk = Desk()
    text = sdp(BROKER, B_ID, protocol="TCP", setup="passive")
    nameless = "".join(line for line in text.splitlines(keepends=True) if "wanderbus-connection" not in line)
    shown = medium(desk.offer(nameless)["sdp"])
    assert desk.open[shown.port].judge(b"") is True


def test_bytes_beyond_the_rate_have_to_wait() -> None:
    a = agreed(Desk(limits={"stream_bytes_per_s": 10_000}))
    assert a.carry(900, 1.0) == 0.0
    assert a.carry(2_100, 1.0) == pytest.approx(0.2)
    assert a.carry(500, 1.2) == pytest.approx(0.05), "what was too much is taken off what comes next"
    assert a.carry(500, 3.0) == 0.0
    assert (a.figures.datagrams, a.figures.bytes) == (4, 4_000)
