"""The ring of a trace, and selections from it (SPEC U-06)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.trace_world import ALICE, BEGAN_US, entry, moving_call, traced
from wanderbus.sip.trace.trace import Trace, in_order
from wanderbus.sip.trace.trace_entry import TraceEntry
from wanderbus.sip.trace.trace_messages import printable, select, sketch, traced_messages

MESSAGE = b"OPTIONS sip:x SIP/2.0\r\nCall-ID: 1\r\n\r\n"


def test_a_flood_is_bounded_by_entries() -> None:
    trace = Trace(entries_max=100)
    for number in range(10_000):
        trace.add(entry(b"%d" % number))
    assert len(trace) == 100
    assert [each.data for each in trace] == [b"%d" % number for number in range(9_900, 10_000)]
    assert trace.dropped == 9_900


@given(st.lists(st.binary(max_size=60), max_size=60), st.integers(0, 200))
def test_a_flood_is_bounded_by_bytes(messages: list[bytes], bytes_max: int) -> None:
    trace = Trace(bytes_max=bytes_max)
    for data in messages:
        trace.add(entry(data))
        assert trace.bytes == sum(len(each.data) for each in trace) <= bytes_max
    assert len(trace) + trace.dropped == len(messages)


def test_a_message_larger_than_the_ring_is_not_kept() -> None:
    trace = Trace(bytes_max=100)
    trace.add(entry(b"x" * 101))
    assert len(trace) == 0


def test_a_message_traced_at_both_ends_is_shown_once() -> None:
    sent = entry(MESSAGE)
    arrived = msgspec.structs.replace(sent, direction="in", at_us=sent.at_us + 10)
    again = msgspec.structs.replace(sent, at_us=sent.at_us + 500_000)
    assert in_order([arrived, sent]) == [sent]
    assert in_order([again, arrived, sent]) == [sent, again]
    clock_is_behind = msgspec.structs.replace(sent, direction="in", at_us=sent.at_us - 10)
    assert len(in_order([sent, clock_is_behind])) == 1
    assert len(in_order([sent, msgspec.structs.replace(arrived, destination=ALICE)])) == 2


def test_a_retransmission_is_marked() -> None:
    found = traced_messages([entry(MESSAGE), entry(MESSAGE, BEGAN_US + 500_000)])
    assert [(each.number, each.label) for each in found] == [(1, "OPTIONS"), (2, "OPTIONS again")]


@pytest.fixture(scope="module")
def call() -> list[TraceEntry]:
    return list(traced(moving_call()))


def test_select_by_call(call: list[TraceEntry]) -> None:
    shown = select(traced_messages(call), call_id="cal")
    assert {each.sketch.call_id for each in shown} == {"call"}
    assert {each.sketch.cseq.method for each in shown if each.sketch.cseq} == {"INVITE", "ACK"}


def test_select_by_user_looks_at_from_and_to(call: list[TraceEntry]) -> None:
    found = traced_messages(call)
    alice, broker = (select(found, user=f"sip:{user}@example.org") for user in ("alice", "broker"))
    assert {each.number for each in (*alice, *broker)} == {each.number for each in found}
    both = {each.number for each in alice} & {each.number for each in broker}
    assert both == {each.number for each in select(found, call_id="call")}


def test_select_by_time_keeps_numbers(call: list[TraceEntry]) -> None:
    found = traced_messages(call)
    shown = select(found, since_us=BEGAN_US + 500_000, until_us=found[-2].entry.at_us)
    assert shown == [each for each in found[:-1] if each.entry.at_us >= BEGAN_US + 500_000]
    assert shown[0].number > 1


@given(st.binary(max_size=300))
def test_anything_can_be_sketched(data: bytes) -> None:
    assert sketch(data).label.isprintable()


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (b"INVITE sip:x SIP/2.0\r\nCSeq: 7 INVITE\r\n\r\n", "INVITE 7"),
        (b"SIP/2.0 486 Busy Here\r\nCSeq: 7 INVITE\r\n\r\n", "486 Busy Here (INVITE 7)"),
        (b"SIP/2.0 200\r\nCSeq: x\r\n\r\n", "200"),
        (b"SIP/2.0 2000 OK\r\n\r\n", "a faulty message"),
        (b"SIP/2.0 200 \x1b[31mred\r\nCSeq: 1 BYE\r\n\r\n", "200 \\x1b[31mred (BYE 1)"),
        (b"INVITE sip:x SIP/2.0\r\nc: application/SDP ; x=y\r\nCSeq: 1 INVITE\r\n\r\nv=0", "INVITE 1 SDP"),
        (b"\x16\x03\x01 nothing", "11 bytes that are no message"),
        (b"SIP/2.0 500 " + b"x" * 100 + b"\r\n\r\n", "500 " + "x" * 41 + "..."),
    ],
)
def test_labels(data: bytes, label: str) -> None:
    assert sketch(data).label == label


def test_terminal_control_characters_are_escaped() -> None:
    assert printable("a\x1b[2J\u202e\udcff\xe4") == "a\\x1b[2J\\u202e\\udcff\xe4"
