"""SIP URIs and canonical users (RFC 3261 19.1, SPEC A-05, X2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import SIPParseError
from wanderbus.sip.message.uri import SIPUri, canonical_uri

USER_CHARACTERS = "abcXYZ019-_.!~*'()&=+$,;?/"
PARAM_CHARACTERS = "abcXYZ019-_.!~*'()[]/:&+$"
words = st.text(PARAM_CHARACTERS, min_size=1, max_size=8)
hosts = st.sampled_from(["example.com", "localhost", "192.0.2.1", "2001:db8::9", "a_b-c.org."])


@st.composite
def uris(draw: st.DrawFn) -> SIPUri:
    """Any SIP URI that can be written."""
    user = draw(st.none() | st.text(USER_CHARACTERS, min_size=1, max_size=12) | st.just("a%40b%2F"))
    names = draw(st.lists(words, max_size=3, unique_by=str.lower))
    return SIPUri(
        scheme=draw(st.sampled_from(["sip", "sips"])),
        user=user,
        host=draw(hosts),
        port=draw(st.none() | st.integers(1, 65_535)),
        params=tuple((name, draw(st.none() | words)) for name in names),
        headers=tuple(draw(st.lists(st.tuples(st.just("Subject"), st.text("ab:?", max_size=4)), max_size=2))),
        password=None if user is None else draw(st.none() | st.text("abc&=+$,", max_size=5)),
    )


@given(uris())
def test_reading_what_was_written_gives_the_same_uri(uri: SIPUri) -> None:
    assert SIPUri.parse(str(uri)) == uri


@given(uris())
def test_the_canonical_form_is_its_own_canonical_form(uri: SIPUri) -> None:
    if uri.user is not None:
        assert canonical_uri(uri.address_of_record) == uri.address_of_record


@given(st.text() | st.text("sip:@;?&=%[]<>. a1", max_size=40).map("sip:".__add__))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        uri = SIPUri.parse_any(text)
    except SIPParseError:
        return
    assert SIPUri.parse_any(str(uri)) == uri


def test_every_part_is_found_rfc3261_19_1_3() -> None:
    uri = SIPUri.parse("SIPS:Alice;x=1:s3cret@Atlanta.COM:5061;transport=tcp;lr?subject=project%20x&priority=urgent")
    assert (uri.scheme, uri.user, uri.password, uri.host, uri.port) == (
        "sips",
        "Alice;x=1",
        "s3cret",
        "atlanta.com",
        5061,
    )
    assert uri.params == (("transport", "tcp"), ("lr", None))
    assert uri.headers == (("subject", "project%20x"), ("priority", "urgent"))
    assert uri.param("LR") == ""
    assert uri.param("Transport") == "tcp"
    assert uri.param("maddr") is None


def test_an_escaped_parameter_name_is_the_same_name_rfc3261_19_1_4() -> None:
    assert SIPUri.parse("sip:a@b;%6C%72").param("lr") == ""


def test_an_ipv6_host_loses_its_brackets_and_gets_them_back_rfc5118() -> None:
    uri = SIPUri.parse("sip:a@[2001:DB8:0::9]:5070")
    assert (uri.host, uri.port) == ("2001:db8::9", 5070)
    assert str(uri) == "sip:a@[2001:db8::9]:5070"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("alice@Example.COM", "sip:alice@example.com"),
        ("sip:alice@example.com", "sip:alice@example.com"),
        ("SIPS:alice@example.com:5061;transport=tcp?a=b", "sip:alice@example.com"),
        ("sip:%61lice@example.com", "sip:alice@example.com"),
        ("sip:a%40b@example.com", "sip:a%40b@example.com"),
        ("sip:a%c3%a9@example.com", "sip:a%C3%A9@example.com"),
        ("alice:s3cret@example.com", "sip:alice@example.com"),
        ("Alice@example.com", "sip:Alice@example.com"),
        (" alice@[::1]:9 ", "sip:alice@[::1]"),
    ],
)
def test_users_are_known_by_one_form_spec_x2(written: str, canonical: str) -> None:
    assert canonical_uri(written) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice",
        "sip:example.com",
        "@example.com",
        "sip:@example.com",
        "al ice@example.com",
        "alice@",
        "alice@exa mple.com",
        "alice@example.com:0",
        "alice@example.com:65536",
        "alice@example.com:٣",
        "alice@example.com:" + "9" * 5_000,
        "alice@[::1",
        "alice@[zz]",
        "alice@[fe80::1%25eth0]",
        "alice@example.com;lr;LR",
        "alice@example.com;%6Cr;lr",
        "alice@example.com;",
        "alice@example.com;a=",
        "alice@example.com?a",
        "al%4ice@example.com",
        "a@b@c",
        "josé@example.com",
        "alice@example.com\r\nTo: x",
        "tel:+15551234",
    ],
)
def test_uris_without_a_user_are_refused(text: str) -> None:
    with pytest.raises(SIPParseError):
        canonical_uri(text)


def test_another_scheme_is_distinguished_rfc4475_3_3_2() -> None:
    with pytest.raises(SIPParseError) as caught:
        SIPUri.parse("nobodyKnowsThisScheme:totallyopaquecontent")
    assert caught.value.status == 416
    uri = SIPUri.parse_any("http://www.example.com/a")
    assert not uri.is_sip
    assert str(uri) == uri.address_of_record == "http://www.example.com/a"


def test_a_password_is_sent_but_never_shown() -> None:
    uri = SIPUri.parse("sip:alice:s3cret@example.com")
    assert str(uri) == "sip:alice:s3cret@example.com"
    assert "s3cret" not in repr(uri) + str(uri.__rich_repr__()) + uri.address_of_record
    with pytest.raises(SIPParseError) as caught:
        SIPUri.parse("sip:alice:s3cr<et@example.com")
    assert "s3cr" not in str(caught.value)
