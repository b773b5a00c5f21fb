"""Messages of a trace as they pass: the same as of the whole trace, in whatever pieces they come (SPEC C-22)."""

from __future__ import annotations

import msgspec
import pytest

from tests.sip.trace_world import moving_call
from wanderbus.sip.trace.following import Following
from wanderbus.sip.trace.trace import Trace
from wanderbus.sip.trace.trace_entry import TraceEntry
from wanderbus.sip.trace.trace_messages import TracedMessage, traced_messages


def passed() -> list[TraceEntry]:
    trace = Trace()
    for each in moving_call():
        trace.add(each)
    return sorted(trace, key=lambda each: each.at_us)


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_c22_messages_that_pass_are_those_of_the_whole_trace(size: int) -> None:
    entries, following = passed(), Following()
    found: list[TracedMessage] = []
    for start in range(0, len(entries), size):
        found += following.take(entries[start : start + size])
    assert found == traced_messages(entries)


def test_a_message_traced_at_both_ends_is_one_and_a_repetition_is_marked() -> None:
    sent = TraceEntry(1, ("127.0.0.1", 1), ("127.0.0.1", 2), "UDP", "out", b"OPTIONS sip:a@b SIP/2.0\r\n\r\n")
    received = msgspec.structs.replace(sent, at_us=2, direction="in")
    following = Following()
    assert [each.again for each in following.take([sent])] == [False]
    assert list(following.take([received])) == []
    (again,) = following.take([msgspec.structs.replace(sent, at_us=3)])
    assert (again.number, again.again) == (2, True)


def test_strangers_do_not_fill_the_memory() -> None:
    following = Following(remembered_max=10)
    for number in range(100):
        entry = TraceEntry(number, ("127.0.0.1", 1), ("127.0.0.1", 2), "UDP", "out", b"%d" % number)
        assert len(list(following.take([entry]))) == 1
    assert len(following._unmatched) == 10
