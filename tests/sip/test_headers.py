"""Structured header values (RFC 3261 20, 25.1; RFC 3581)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import SIPParseError
from wanderbus.sip.message.headers import (
    CONTACT_STAR,
    CSeq,
    NameAddr,
    Params,
    Via,
    format_params,
    parse_params,
    split_list,
)
from wanderbus.sip.message.uri import CACHE_ENTRIES_MAX, CACHED_CHARACTERS_MAX, SIPUri

tokens = st.text("abcXYZ019-.!%*_+`'~", min_size=1, max_size=10)
params: st.SearchStrategy[Params] = st.lists(
    st.tuples(tokens, st.none() | st.text(max_size=12)), max_size=4, unique_by=lambda pair: pair[0].lower()
).map(tuple)
uris = st.sampled_from(["sip:a@example.com;lr?x=y", "sips:[2001:db8::1]:5061", "isbn:2983792873"]).map(SIPUri.parse_any)
name_addrs = st.builds(NameAddr, st.none() | st.text(max_size=20), uris, params)
vias = st.builds(
    Via,
    tokens.map(str.upper),
    st.sampled_from(["192.0.2.1", "host.example.com", "::1"]),
    st.none() | st.integers(1, 65_535),
    params,
)


@pytest.mark.parametrize(
    ("parse", "beginning"),
    [
        (Via.parse, "SIP/2.0/UDP host.example.com;branch=z9hG4bK"),
        (NameAddr.parse, "Bob <sip:bob@example.com>;tag="),
        (SIPUri.parse_any, "sip:bob@example.com;user="),
    ],
)
def test_a_short_value_that_was_read_lately_is_not_read_again(
    parse: Callable[[str], NameAddr | Via | SIPUri], beginning: str
) -> None:
    first = parse(beginning + "x")
    assert parse(beginning + "x") is first
    for number in range(CACHE_ENTRIES_MAX):
        assert parse(f"{beginning}{number}") != first
    assert parse(beginning + "x") is not first
    long = beginning.ljust(CACHED_CHARACTERS_MAX + 1, "x")
    assert parse(long) == parse(long)
    assert parse(long) is not parse(long)


@given(params)
def test_parameters_come_back(value: Params) -> None:
    assert parse_params(format_params(value), "test") == value


@given(name_addrs)
def test_addresses_come_back(value: NameAddr) -> None:
    assert NameAddr.parse(str(value)) == value


@given(vias)
def test_vias_come_back(value: Via) -> None:
    assert Via.parse(str(value)) == value


@given(st.integers(0, 2**31 - 1), tokens)
def test_cseqs_come_back(number: int, method: str) -> None:
    assert CSeq.parse(str(CSeq(number, method))) == CSeq(number, method)


@given(st.lists(name_addrs, max_size=4))
def test_a_list_is_split_only_between_its_values_rfc3261_7_3_1(values: list[NameAddr]) -> None:
    assert [NameAddr.parse(item) for item in split_list(", ".join(map(str, values)))] == values


@pytest.mark.parametrize("parse", [NameAddr.parse, Via.parse, CSeq.parse])
@given(
    text=st.text()
    | st.text('"\\<>;,:=@ sipSIP/2.0aé\t', max_size=40)
    | st.text('<>;"= ', max_size=8).map("<sip:a@b>".__add__)
)
def test_any_text_is_read_or_refused(parse: Callable[[str], object], text: str) -> None:
    try:
        value = parse(text)
    except SIPParseError:
        return
    assert parse(str(value)) == value


@given(st.text('a,"\\<> ', max_size=30))
def test_any_list_is_split_or_refused(text: str) -> None:
    try:
        items = split_list(text)
    except SIPParseError:
        return
    assert all(item and item == item.strip(" \t") for item in items)


def test_a_via_with_white_space_everywhere_rfc4475_3_1_1_1() -> None:
    via = Via.parse(
        "SIP  / 2.0  / tcp     spindle.example.com : 5070  ; branch  =   z9hG4bK9ikj8 ;rport; received=192.0.2.7"
    )
    assert (via.transport, via.host, via.port) == ("TCP", "spindle.example.com", 5070)
    assert (via.branch, via.received, via.rport, via.wants_rport) == ("z9hG4bK9ikj8", "192.0.2.7", None, True)


def test_a_server_fills_in_received_and_rport_rfc3581_4() -> None:
    via = Via.parse("SIP/2.0/UDP 10.1.1.1:4540;rport;branch=z9hG4bKkjshdyff")
    seen = via.with_param("received", "192.0.2.1").with_param("RPORT", "9988")
    assert str(seen) == "SIP/2.0/UDP 10.1.1.1:4540;rport=9988;branch=z9hG4bKkjshdyff;received=192.0.2.1"
    assert (seen.rport, seen.wants_rport, seen.received) == (9988, False, "192.0.2.1")
    assert (Via.parse("SIP/2.0/UDP h").rport, Via.parse("SIP/2.0/UDP h").wants_rport) == (None, False)


def test_received_may_come_with_brackets_rfc5118_4_5() -> None:
    assert Via.parse("SIP/2.0/UDP [2001:db8::9]:50;received=[2001:db8::9:255]").received == "2001:db8::9:255"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SIP/2.0/UDP",
        "SIP/2.0 host",
        "HTTP/2.0/UDP host",
        "SIP/2.0/UDP host:port",
        "SIP/2.0/UDP host:99999",
        "SIP/2.0/UDP host:0",
        "SIP/2.0/UDP ho st",
        "SIP/2.0/UDP 192.0.2.15;;",
        "SIP/2.0/UDP host;branch=",
        "SIP/2.0/UDP host;branch=a;Branch=b",
        'SIP/2.0/UDP host;branch="a',
    ],
)
def test_a_bad_via_is_refused_rfc4475_3_1_2_1(text: str) -> None:
    with pytest.raises(SIPParseError):
        Via.parse(text)


@pytest.mark.parametrize(
    ("text", "display", "uri", "tag"),
    [
        ("sip:a@b;tag=1", None, "sip:a@b", "1"),
        ("<sip:a@b;tag=1>", None, "sip:a@b;tag=1", None),
        ("A. Bell <sip:a@b>;tag=1", "A. Bell", "sip:a@b", "1"),
        ("caller<sip:a@b>;tag=323", "caller", "sip:a@b", "323"),
        ('"" <sip:a@b>', "", "sip:a@b", None),
        (r'"J Rosenberg \\\"" <sip:a@b> ; tag = 98asjd8', 'J Rosenberg \\"', "sip:a@b", "98asjd8"),
        ('"a <sip:x@y>, b" <sip:a@b>', "a <sip:x@y>, b", "sip:a@b", None),
        ("大停電 <sip:a@b>", "大停電", "sip:a@b", None),
        ("isbn:2983792873", None, "isbn:2983792873", None),
    ],
)
def test_addresses_in_all_their_forms_rfc3261_20_10(text: str, display: str | None, uri: str, tag: str | None) -> None:
    value = NameAddr.parse(text)
    assert (value.display, str(value.uri), value.tag) == (display, uri, tag)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "<>",
        "<sip:a@b",
        "sip:a@b>",
        "< sip:a@b >",
        '"Mr. J. User <sip:j.user@example.com>',
        '"a" sip:a@b',
        "Bell, Alexander <sip:a@b>",
        "<sip:a@b>;;tag=1",
        "<sip:a@b>;tag=1;tag=2",
        "<sip:a@b> tag=1",
        "<sip:a@b>>",
        "sip:user@example.com?Route=%3Csip:sip.example.com%3E",
    ],
)
def test_a_bad_address_is_refused_rfc4475_3_1_2(text: str) -> None:
    with pytest.raises(SIPParseError):
        NameAddr.parse(text)


def test_a_value_that_needs_quotes_gets_them_rfc5626() -> None:
    contact = NameAddr(None, SIPUri.parse("sip:a@b"), (("+sip.instance", "<urn:uuid:f81d4fae>"), ("expires", "60")))
    assert str(contact) == '<sip:a@b>;+sip.instance="<urn:uuid:f81d4fae>";expires=60'
    assert NameAddr.parse(str(contact)).param("+SIP.instance") == "<urn:uuid:f81d4fae>"


def test_the_star_is_written_as_such_rfc3261_10_2_2() -> None:
    assert str(CONTACT_STAR) == "*"


@pytest.mark.parametrize(
    "text", ["", "1", "INVITE", "1 INVITE x", "-1 INVITE", "2147483648 INVITE", "٣ INVITE", "1 IN\rVITE"]
)
def test_a_bad_cseq_is_refused_rfc3261_8_1_1_5(text: str) -> None:
    with pytest.raises(SIPParseError):
        CSeq.parse(text)


def test_empty_list_items_are_left_out_and_open_quotes_refused() -> None:
    assert split_list(' a , "b,c" <d,e>,, f ') == ["a", '"b,c" <d,e>', "f"]
    for text in ('a, "b', "a, <b", '"a\\"'):
        with pytest.raises(SIPParseError):
            split_list(text)
