"""SDP of one end of a data channel (SPEC A-08, C-17, U-05; DESIGN 6.7; RFC 4145, RFC 8122)."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.datachannel import ChannelEnd, describe_end, protocol_over, read_end
from wanderbus.datachannel.description import session_of, with_session
from wanderbus.errors import SIPParseError
from wanderbus.mobility.session.offer_answer import is_data_channel
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription

KEY = bytes(range(32))
KEY_TEXT = f"x25519-aes128gcm {b64encode(KEY).decode()}"
MAC = bytes(range(32, 64))

common = {
    "address": st.tuples(st.sampled_from(["10.0.0.1", "2001:db8::1"]), st.integers(1, 65_535)),
    "connection": st.integers(1, 2**64 - 1),
    "generation": st.integers(0, 2**32 - 1),
    "mac": st.sampled_from([b"", MAC]),
}
over_udp = st.builds(ChannelEnd, **common, key=st.one_of(st.just(b""), st.binary(min_size=32, max_size=32)))
over_tcp = st.builds(
    ChannelEnd,
    **common,
    protocol=st.just("TCP/TLS"),
    setup=st.sampled_from(["active", "passive", "actpass"]),
    existing=st.booleans(),
    fingerprint=st.one_of(st.just(b""), st.binary(min_size=32, max_size=32)),
)
plain_tcp = st.builds(ChannelEnd, **common, protocol=st.just("TCP"), setup=st.just("active"))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("sub.delays-2_x", "sub.delays-2_x"),
        ("x" * 64, "x" * 64),
        ("x" * 65, ""),
        ("", ""),
        ("a b", ""),
        ("a\u00e9", ""),
    ],
)
def test_the_session_that_an_agent_wants_to_join_is_read_if_it_is_a_name(given: str, read: str) -> None:
    media = describe_end(ChannelEnd(address=("10.0.0.1", 4_000), connection=1, generation=0, key=KEY))
    assert session_of(media) == ""
    named = with_session(media, given)
    assert session_of(named) == read
    assert read_end(named) == read_end(media)


@given(end=st.one_of(over_udp, over_tcp, plain_tcp))
def test_c17_an_end_survives_its_description_and_its_sdp(end: ChannelEnd) -> None:
    media = describe_end(end)
    assert read_end(media) == end
    assert is_data_channel(media)
    whole = SessionDescription("alice", 1, 1, end.address[0], (media,))
    assert read_end(SessionDescription.parse(whole.encode()).media[0]) == end


def lines(end: ChannelEnd) -> list[str]:
    sdp = SessionDescription("alice", 1, 1, end.address[0], (describe_end(end),)).encode().decode()
    return [line for line in sdp.split("\r\n") if line[:2] in ("m=", "a=")]


def test_sealed_reliable_udp_reads_as_documented() -> None:
    end = ChannelEnd(address=("10.0.0.1", 40_000), connection=0x1F00C3A8D2B94E61, generation=3, key=KEY, mac=MAC)
    assert lines(end) == [
        "m=application 40000 UDP x-wanderbus",
        "a=wanderbus-connection:1f00c3a8d2b94e61",
        "a=wanderbus-generation:3",
        f"a=wanderbus-key:{KEY_TEXT}",
        f"a=wanderbus-mac:{b64encode(MAC).decode()}",
    ]


def test_unencrypted_reliable_udp_is_marked() -> None:
    end = ChannelEnd(address=("10.0.0.1", 40_000), connection=1, generation=0)
    assert lines(end)[-1] == "a=wanderbus-plain"
    assert not read_end(describe_end(end)).sealed


def test_tcp_reads_as_rfc_4145_and_rfc_8122_have_it() -> None:
    end = ChannelEnd(
        address=("10.0.0.1", 5072),
        connection=1,
        generation=0,
        protocol="TCP/TLS",
        setup="passive",
        fingerprint=bytes([0x4A, 0xAD] * 16),
    )
    assert lines(end) == [
        "m=application 5072 TCP/TLS x-wanderbus",
        "a=wanderbus-connection:0000000000000001",
        "a=wanderbus-generation:0",
        "a=setup:passive",
        "a=connection:new",
        "a=fingerprint:sha-256 " + ":".join(["4A", "AD"] * 16),
    ]


def test_protocol_over() -> None:
    assert protocol_over("UDP", encryption=True) == protocol_over("UDP", encryption=False) == "UDP"
    assert protocol_over("TCP", encryption=True) == protocol_over("TCP/TLS", encryption=True) == "TCP/TLS"
    assert protocol_over("TCP/TLS", encryption=False) == "TCP"


WHOLE = {"wanderbus-connection": "1f", "wanderbus-generation": "1", "wanderbus-key": KEY_TEXT}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wanderbus-connection", None),
        ("wanderbus-connection", ""),
        ("wanderbus-connection", "xyz"),
        ("wanderbus-connection", "0"),
        ("wanderbus-connection", "-1"),
        ("wanderbus-connection", "0x1f"),
        ("wanderbus-connection", "1_f"),
        ("wanderbus-connection", "1" + "0" * 16),
        ("wanderbus-connection", "\u0661"),
        ("wanderbus-generation", None),
        ("wanderbus-generation", "-1"),
        ("wanderbus-generation", str(2**32)),
        ("wanderbus-generation", "1.5"),
        ("wanderbus-generation", "9" * 5_000),
        ("wanderbus-key", None),
        ("wanderbus-key", ""),
        ("wanderbus-key", "x25519-aes128gcm"),
        ("wanderbus-key", f"x25519-aes256gcm {b64encode(KEY).decode()}"),
        ("wanderbus-key", f"x25519-aes128gcm {b64encode(KEY[1:]).decode()}"),
        ("wanderbus-key", "x25519-aes128gcm !" + "A" * 43),
        ("wanderbus-key", "x25519-aes128gcm \u00e9"),
        ("wanderbus-plain", ""),
        ("wanderbus-mac", ""),
        ("wanderbus-mac", b64encode(MAC[1:]).decode()),
    ],
)
def test_a_description_without_an_end_is_answered_488(name: str, value: str | None) -> None:
    attributes = {**WHOLE, name: value}
    given = tuple((each, text) for each, text in attributes.items() if text is not None)
    with pytest.raises(SIPParseError) as caught:
        read_end(MediaDescription(address="10.0.0.1", port=1, attributes=given))
    assert caught.value.status == 488


@pytest.mark.parametrize("text", ["4A:AD", "sha-256", "sha-256 ", "sha-256 4A:AD", "sha-256 " + "zz:" * 31 + "zz"])
def test_a_fingerprint_that_is_none(text: str) -> None:
    attributes = (("wanderbus-connection", "1f"), ("wanderbus-generation", "1"), ("fingerprint", text))
    media = MediaDescription(address="10.0.0.1", port=1, protocol="TCP/TLS", attributes=attributes)
    if text.startswith("sha-256"):
        with pytest.raises(SIPParseError):
            read_end(media)
    else:
        assert read_end(media).fingerprint == b""


def test_the_supported_one_of_several_fingerprints_is_used() -> None:
    """RFC 8122 5.1: an end may show one for each hash function."""
    attributes = (
        ("wanderbus-connection", "1f"),
        ("wanderbus-generation", "1"),
        ("fingerprint", "sha-512 00:11"),
        ("fingerprint", "SHA-256 " + KEY.hex(":")),
    )
    media = MediaDescription(address="10.0.0.1", port=1, protocol="tcp/tls", attributes=attributes)
    assert read_end(media).fingerprint == KEY


def test_another_protocol_is_no_data_channel() -> None:
    attributes = tuple(WHOLE.items())
    media = MediaDescription(address="10.0.0.1", port=1, protocol="RTP/AVP", attributes=attributes)
    assert not is_data_channel(media)
    with pytest.raises(SIPParseError):
        read_end(media)
