"""Changes of a relay in a session description, and the parts that it leaves unchanged (SPEC I-04)."""

from __future__ import annotations

import pytest

from tests.relay.desk import A_HOME, A_ID, sdp
from wanderbus.datachannel import read_end
from wanderbus.errors import SIPParseError
from wanderbus.relay.description import read, rewritten
from wanderbus.sip.message.sdp import SessionDescription

TEXT = """v=0
o=alice 7 8 IN IP4 10.0.0.5
s=a session
c=IN IP4 10.0.0.5
b=AS:64
t=0 0
a=sendrecv
m=application 4000 UDP x-wanderbus
a=wanderbus-connection:1f00c3a8d2b94e61
a=wanderbus-generation:3
m=audio 7000/2 RTP/AVP 0 8
c=IN IP4 10.0.0.6/127
a=rtcp:7001
a=rtcp-mux
a=candidate:1 1 UDP 2130706431 10.0.0.6 7000 typ host
a=ice-ufrag:abcd
a=rtpmap:0 PCMU/8000
m=video 0 RTP/AVP 31
""".replace("\n", "\r\n")


def test_addresses_and_ports_are_the_relays_and_ways_around_it_are_gone() -> None:
    expected = TEXT
    for old, new in (
        ("c=IN IP4 10.0.0.5", "c=IN IP4 198.51.100.1"),
        ("c=IN IP4 10.0.0.6/127", "c=IN IP4 198.51.100.1"),
        ("m=application 4000 ", "m=application 30000 "),
        ("m=audio 7000/2 ", "m=audio 30002 "),
        ("a=rtcp:7001\r\n", ""),
        ("a=candidate:1 1 UDP 2130706431 10.0.0.6 7000 typ host\r\n", ""),
        ("a=ice-ufrag:abcd\r\n", ""),
    ):
        assert old in expected
        expected = expected.replace(old, new)
    assert rewritten(TEXT, "198.51.100.1", [30_000, 30_002, 0], origin=False) == expected
    with_origin = expected.replace("o=alice 7 8 IN IP4 10.0.0.5", "o=alice 7 8 IN IP4 198.51.100.1")
    assert rewritten(TEXT, "198.51.100.1", [30_000, 30_002, 0], origin=True) == with_origin


def test_line_ends_stay_as_they_were() -> None:
    bare = TEXT.replace("\r\n", "\n")
    assert "\r" not in rewritten(bare, "198.51.100.1", [1, 2, 3], origin=True)


def test_a_last_line_without_an_end_may_go() -> None:
    cut = TEXT.partition("a=candidate")[0] + "a=candidate:1"
    assert rewritten(cut, "198.51.100.1", [1, 2, 3], origin=True).endswith("a=rtcp-mux\r\n")


def test_an_ipv6_relay_is_named_so() -> None:
    text = rewritten(TEXT, "2001:db8::1", [1, 2, 3], origin=True)
    assert text.count("IN IP6 2001:db8::1") == 3
    assert SessionDescription.parse(text.encode()).media[0].address == "2001:db8::1"


def test_media_are_parsed() -> None:
    data, audio, video = read(TEXT).media
    assert (data.transport, data.address, data.wanted) == ("UDP", ("10.0.0.5", 4000), True)
    assert (data.connection_id, data.generation) == (bytes.fromhex("1f00c3a8d2b94e61"), 3)
    assert (audio.address, audio.connection_id, audio.generation) == (("10.0.0.6", 7000), None, 0)
    assert not video.wanted


def test_the_source_replaces_the_described_address() -> None:
    assert [medium.address for medium in read(TEXT, "203.0.113.9").media][:2] == [
        ("203.0.113.9", 4000),
        ("203.0.113.9", 7000),
    ]


@pytest.mark.parametrize(
    ("setup", "port", "connects"),
    [("active", 9, True), ("active", 4000, True), ("actpass", 9, True), ("passive", 4000, False), ("", 4000, False)],
)
@pytest.mark.parametrize("protocol", ["TCP", "TCP/TLS", "tcp/tls"])
def test_connecting_side(protocol: str, setup: str, port: int, connects: bool) -> None:
    text = sdp(("192.0.2.1", port), protocol="TCP", setup=setup or "x").replace(" TCP ", f" {protocol} ")
    (medium,) = read(text if setup else text.replace("a=setup:x\r\n", "")).media
    assert (medium.transport, medium.connects) == ("TCP", connects)


@pytest.mark.parametrize("protocol", ["UDP", "TCP", "TCP/TLS"])
def test_an_end_of_a_data_channel_goes_through_whole(protocol: str) -> None:
    """DESIGN 6.5: keys, ids and MACs are between the two ends, and a relay is neither."""
    text = sdp(A_HOME, A_ID, protocol=protocol, setup="passive", generation=2)
    (before,) = SessionDescription.parse(text.encode()).media
    (after,) = SessionDescription.parse(rewritten(text, "198.51.100.1", [30_000], origin=True).encode()).media
    assert after.attributes == before.attributes
    assert read_end(after).address == ("198.51.100.1", 30_000)


@pytest.mark.parametrize("value", ["", "zz", "1" * 17, "1f00 c3"])
def test_an_id_that_is_none_is_as_good_as_none(value: str) -> None:
    text = TEXT.replace("a=wanderbus-connection:1f00c3a8d2b94e61", f"a=wanderbus-connection:{value}".rstrip(":"))
    assert read(text).media[0].connection_id is None


@pytest.mark.parametrize("text", ["", "hello", "v=0\r\n", TEXT.replace("4000", "70000"), "\udcff", TEXT + "\udcff"])
def test_malformed_descriptions(text: str) -> None:
    with pytest.raises(SIPParseError):
        read(text)
