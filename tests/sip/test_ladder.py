"""The ladder diagram as text and as SVG, and the difference of two messages (SPEC U-06)."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.sip.trace_world import ALICE, BROKER, entry, moving_call, traced
from wanderbus.sip.trace.ladder import (
    COMPARED_LINES_MAX,
    MESSAGES_MAX,
    PARTICIPANTS_MAX,
    columns,
    difference,
    ladder,
    participants,
)
from wanderbus.sip.trace.ladder_svg import TITLE_CHARACTERS_MAX, ladder_svg
from wanderbus.sip.trace.trace_entry import TraceEntry
from wanderbus.sip.trace.trace_messages import TracedMessage, select, traced_messages

GOLDEN = Path(__file__).parent / "golden" / "moving_call.txt"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def found() -> list[TracedMessage]:
    return traced_messages(traced(moving_call()))


def test_register_invite_and_re_invite(found: list[TracedMessage]) -> None:
    """Alice registers, calls, and re-INVITEs from where she has moved to, while she registers there (SPEC D-08)."""
    assert ladder(select(found, user="sip:alice@example.org")) == GOLDEN.read_text(encoding="utf-8")


def test_nothing_to_show_is_nothing() -> None:
    assert ladder([]) == ""
    assert ElementTree.fromstring(ladder_svg([])).tag == f"{SVG}svg"


def test_participants_stand_in_order_of_appearance(found: list[TracedMessage]) -> None:
    """A proxy that makes an ACK in the name of the caller is not taken for the caller."""
    names = {column.place: column.name for column in participants(found)}
    assert names == {"10.0.1.1:5060": "broker", "10.0.0.1:5060": "", "10.0.2.1:5060": "alice", "10.0.9.9:5060": "alice"}


def test_arrows_join_the_lifelines_of_who_sent_and_received(found: list[TracedMessage]) -> None:
    text = ladder(found).splitlines()
    centres = {column.place: text[1].index(column.place) + len(column.place) // 2 for column in participants(found)}
    for each, line in zip(found, text[3:], strict=True):
        source, destination = (
            centres[f"{address[0]}:{address[1]}"] for address in (each.entry.source, each.entry.destination)
        )
        low, high = sorted((source, destination))
        assert line[low] == line[high] == "|"
        assert line[destination + (1 if destination < source else -1)] == ("<" if destination < source else ">")
        assert f" {each.label} " in line[low:high]


def test_a_message_to_itself_has_no_arrow() -> None:
    itself = TraceEntry(0, ALICE, ALICE, "UDP", "out", b"OPTIONS sip:x SIP/2.0\r\nCSeq: 1 OPTIONS\r\n\r\n")
    assert ladder(traced_messages([itself])).splitlines()[-1].endswith("|<> OPTIONS 1")


def test_payloads_stand_below_their_arrows(found: list[TracedMessage]) -> None:
    text = ladder(select(found, call_id="call")[-2:], payloads=True)
    assert "        Call-ID: call\n" in text
    assert "        m=application 40000 UDP x-wanderbus\n" in text
    assert "nonce=***" in text


def test_the_terminal_is_safe_from_what_arrives() -> None:
    hostile = b"OPTIONS sip:x SIP/2.0\r\nSubject: \x1b]0;owned\x07\r\nFrom: <sip:\xe2\x80\xae@x>\r\n\r\n\x1b[2J\x9b"
    for text in (
        ladder(traced_messages([entry(hostile)]), payloads=True),
        ladder(traced_messages([entry(b"\x1b\x07")])),
    ):
        assert all(line.isprintable() for line in text.splitlines())


def test_difference_by_header_field() -> None:
    one = b"BYE sip:x SIP/2.0\r\nVia: a\r\nCSeq: 1 BYE\r\nTo: <sip:x>\r\nCall-ID: 7\r\n\r\nv=0\r\nc=here\r\nt=0 0\r\n"
    two = b"BYE sip:x SIP/2.0\r\nv: b\r\nt: <sip:x>\r\nCSeq: 2 BYE\r\ni:7\r\ns: y\r\n\r\nv=0\r\nc=there\r\nt=0 0\r\n"
    shown = difference(*traced_messages([entry(one), entry(two, 1_700_000_001_000_000)]))
    assert shown.splitlines() == [
        "--- 1  BYE 1  10.0.2.1:5060 -> 10.0.0.1:5060",
        "+++ 2  BYE 2  10.0.2.1:5060 -> 10.0.0.1:5060",
        " BYE sip:x SIP/2.0",
        "-Via: a",
        "+Via: b",
        "-CSeq: 1 BYE",
        "+CSeq: 2 BYE",
        " To: <sip:x>",
        " Call-ID: 7",
        "+Subject: y",
        " ",
        " v=0",
        "-c=here",
        "+c=there",
        " t=0 0",
    ]


def test_difference_of_bytes_that_are_no_message() -> None:
    shown = difference(*traced_messages([entry(b"\x01\x02"), entry(b"\x01\x03", 1_700_000_001_000_000)]))
    assert "-\\x01\\x02" in shown
    assert "+\\x01\\x03" in shown


def test_svg_needs_nothing_else(found: list[TracedMessage]) -> None:
    """It is well-formed, has an arrow and a title for each message, and loads no other resource."""
    text = ladder_svg(found)
    root = ElementTree.fromstring(text)
    assert len(root.findall(f".//{SVG}polygon")) == len(found)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert [each.sketch.start_line for each in found] == [title.splitlines()[0] for title in titles]
    labels = [element.text for element in root.iter(f"{SVG}text") if element.get("class") == "label"]
    assert labels == [each.label for each in found]
    assert text.count("http") == 1
    assert "script" not in text


def test_svg_is_safe_from_what_arrives() -> None:
    hostile = (
        b"OPTIONS sip:x SIP/2.0\r\nSubject: </title><script>alert(1)</script>&\x00\x0b\r\nFrom: <sip:%22@x>\r\n\r\n"
    )
    root = ElementTree.fromstring(ladder_svg(traced_messages([entry(hostile), entry(b"]]><script/>\xff\xfe")])))
    assert "script" not in {element.tag.removeprefix(SVG) for element in root.iter()}


def test_addresses_of_ipv6_stand_in_brackets() -> None:
    there = TraceEntry(0, ("2001:db8::1", 5060), BROKER, "UDP", "out", b"x")
    assert "[2001:db8::1]:5060" in ladder(traced_messages([there]))


# Traces that strangers fill -------------------------------------------------------------------------------------------


def flood(count: int) -> list[TracedMessage]:
    """Messages to the broker from as many addresses, between others of two that talk."""
    options = b"OPTIONS sip:x SIP/2.0\r\nVia: SIP/2.0/UDP h\r\nFrom: <sip:%s@x>;tag=1\r\nCSeq: 1 OPTIONS\r\n\r\n"
    strangers = [
        TraceEntry(2 * at, (f"10.9.{at // 250}.{at % 250}", 5060), BROKER, "UDP", "in", options % b"stranger")
        for at in range(count)
    ]
    own = [TraceEntry(2 * at + 1, ALICE, BROKER, "UDP", "in", options % b"alice") for at in range(count)]
    return traced_messages(strangers + own)


def test_a_flood_from_many_addresses_shares_one_column() -> None:
    found = flood(1_000)
    columns_of = columns(found)
    assert len(columns_of.participants) == PARTICIPANTS_MAX
    assert max(columns_of.index[BROKER], columns_of.index[ALICE]) < PARTICIPANTS_MAX - 1
    assert columns_of.participants[-1].name == f"{1_002 - PARTICIPANTS_MAX + 1} other addresses"
    widest = max(map(len, ladder(found).splitlines()))
    assert widest < 50 * PARTICIPANTS_MAX
    assert ElementTree.fromstring(ladder_svg(found)).tag == f"{SVG}svg"


def test_a_diagram_ends_and_counts_the_messages_after_it() -> None:
    found = flood(MESSAGES_MAX // 2 + 3)
    text = ladder(found).splitlines()
    assert len(text) < MESSAGES_MAX + 5
    assert text[-1].startswith("6 more messages, the first after 0.0050 s")
    assert "6 more messages" in ladder_svg(found)


def test_a_long_body_is_compared_up_to_a_bound() -> None:
    """The comparison of many equal lines takes time that grows with the square of their number and more."""
    start = b"MESSAGE sip:x SIP/2.0\r\nCSeq: 1 MESSAGE\r\n\r\n"
    one, two = (start + b"".join(b"%d\r\n" % (at // 90 * step) for at in range(30_000)) for step in (1, 7))
    shown = difference(*traced_messages([entry(one), entry(two, 1_700_000_001_000_000)])).splitlines()
    assert len(shown) < 3 * COMPARED_LINES_MAX
    assert f"({30_000 - COMPARED_LINES_MAX} more lines)" in " ".join(shown)


def test_the_title_of_an_arrow_is_cut_off() -> None:
    long = b"MESSAGE sip:x SIP/2.0\r\nCSeq: 1 MESSAGE\r\n\r\n" + b"<" * 60_000
    assert len(ladder_svg(traced_messages([entry(long)]))) < 6 * TITLE_CHARACTERS_MAX
