"""Session descriptions (RFC 4566, RFC 3264; SPEC C-16, X8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.sip.message.sdp import MEDIA_MAX, MediaDescription, SessionDescription

words = st.text("abcXYZ019-./", min_size=1, max_size=8)
addresses = st.sampled_from(["192.0.2.1", "127.0.0.7", "2001:db8::1", "host.example.com"])
values = st.none() | st.text(
    st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1, max_size=12
)
media = st.builds(
    MediaDescription,
    media=words,
    address=addresses,
    port=st.integers(0, 65_535),
    protocol=words,
    formats=st.lists(words, min_size=1, max_size=3).map(tuple),
    attributes=st.lists(st.tuples(st.text("abc-019", min_size=1, max_size=8), values), max_size=4).map(tuple),
)
numbers = st.integers(0, 2**64 - 1)
sessions = st.builds(SessionDescription, words, numbers, numbers, addresses, st.lists(media, max_size=3).map(tuple))

VALID = (
    b"v=0\r\no=mhandley 29739 7272939 IN IP4 192.0.2.5\r\ns=-\r\nc=IN IP4 192.0.2.5\r\nt=0 0\r\n"
    b"m=audio 49217 RTP/AVP 0 12\r\nm=video 3227 RTP/AVP 31\r\nc=IN IP6 2001:DB8::1\r\n"
    b"a=rtpmap:31 LPC\r\na=recvonly\r\n"
)


@given(sessions)
def test_reading_what_was_written_gives_the_same_session(session: SessionDescription) -> None:
    assert SessionDescription.parse(session.encode()) == session


@given(
    st.binary(max_size=80)
    | st.tuples(st.integers(0, len(VALID)), st.integers(0, 8), st.binary(max_size=4)).map(
        lambda cut: VALID[: cut[0]] + cut[2] + VALID[cut[0] + cut[1] :]
    )
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        session = SessionDescription.parse(data)
    except SIPParseError:
        return
    assert SessionDescription.parse(session.encode()) == session


def test_each_medium_has_the_address_that_holds_for_it_rfc4566_5_7() -> None:
    session = SessionDescription.parse(VALID)
    assert (session.username, session.session_id, session.version, session.address) == (
        "mhandley",
        29739,
        7272939,
        "192.0.2.5",
    )
    audio, video = session.media
    assert (audio.media, audio.address, audio.port, audio.protocol, audio.formats) == (
        "audio",
        "192.0.2.5",
        49217,
        "RTP/AVP",
        ("0", "12"),
    )
    assert (video.address, video.attribute("rtpmap"), video.attribute("recvonly")) == ("2001:db8::1", "31 LPC", "")
    assert audio.attribute("rtpmap") is None


def test_a_data_channel_is_offered_as_the_relays_expect_it() -> None:
    channel = MediaDescription(address="127.0.0.7", port=4000, attributes=(("wanderbus-id", "17"), ("active", None)))
    session = SessionDescription("-", 1, 2, "127.0.0.1", (channel,))
    assert session.encode() == (
        b"v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
        b"m=application 4000 UDP x-wanderbus\r\nc=IN IP4 127.0.0.7\r\na=wanderbus-id:17\r\na=active\r\n"
    )


def test_any_number_of_media_up_to_the_bound_spec_c16() -> None:
    head = b"v=0\no=- 1 1 IN IP4 192.0.2.1\nc=IN IP4 192.0.2.1\n"
    line = b"m=application 9 UDP x-wanderbus\n"
    assert len(SessionDescription.parse(head + line * MEDIA_MAX).media) == MEDIA_MAX
    with pytest.raises(SIPParseError):
        SessionDescription.parse(head + line * (MEDIA_MAX + 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"v=0", b"v=1"),
        (b"o=mhandley", b"a=mhandley"),
        (b"29739", b"x"),
        (b"29739", b"99999999999999999999999999999999"),
        (b"IN IP4 192.0.2.5\r\ns", b"IN IP4 192.0.2.5 x\r\ns"),
        (b"c=IN IP4 192.0.2.5\r\n", b""),
        (b"c=IN IP4 192.0.2.5\r\n", b"c=IN IP4 2001:db8::1\r\n"),
        (b"c=IN IP4 192.0.2.5\r\n", b"c=AT IP4 192.0.2.5\r\n"),
        (b"49217", b"65536"),
        (b"49217", b"-1"),
        (b" 0 12", b""),
        (b"a=recvonly", b"a=recv only"),
        (b"a=recvonly", b"a=recvonly:"),
        (b"a=recvonly", b"recvonly"),
        (b"a=recvonly", b"a=\xff"),
        (b"s=-\r\n", b"s=-\r\n\r\n"),
    ],
)
def test_a_bad_line_is_refused(old: bytes, new: bytes) -> None:
    with pytest.raises(SIPParseError):
        SessionDescription.parse(VALID.replace(old, new, 1))


@pytest.mark.parametrize(
    "medium",
    [
        MediaDescription(address="192.0.2.1", port=1, attributes=(("a", "x\r\nm=evil"),)),
        MediaDescription(address="192.0.2.1 x", port=1),
        MediaDescription(address="192.0.2.1", port=1, formats=("a b",)),
    ],
)
def test_a_part_that_would_break_its_line_is_not_written(medium: MediaDescription) -> None:
    with pytest.raises(LocalProtocolError):
        SessionDescription("-", 1, 1, "192.0.2.1", (medium,)).encode()
