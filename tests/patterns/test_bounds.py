"""Bounds of a pattern's state, late events, and stored states (SPEC T-07)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import msgspec
import pytest

from wanderbus.event import Event
from wanderbus.patterns import NEVER_US, AcceptedEvent, OtherPattern, Pattern, PatternState, Seen, compile_pattern


def events(pattern: Pattern, subjects: str, first: int = 0, key: str = "x") -> list[Seen]:
    """Return events of these subjects, a letter each, one microsecond after another."""
    rows = [
        AcceptedEvent(Event(subject, {"k": key}), offset, offset)
        for offset, subject in enumerate(subjects, start=first)
    ]
    return pattern.classify(rows)


def test_partial_matches_beyond_the_bound_are_refused_and_counted() -> None:
    pattern = compile_pattern("by k match A: a then B: b within 1 second select every", partial_matches_max=3)
    seen = events(pattern, "aaaaab") + events(pattern, "ab", 6, key="y")
    state, found = pattern.advance(pattern.start(), seen, 8)
    assert [each.events[0].offset for each in found] == [0, 1, 2, 6]
    assert (state.counts.partial_full, state.partial_matches) == (2, 4)


def test_a_match_needs_no_room_for_partial_matches_once_it_is_complete() -> None:
    pattern = compile_pattern("by k match A: a then B: b within 1 second", partial_matches_max=1)
    state, found = pattern.advance(pattern.start(), events(pattern, "abab"), NEVER_US)
    assert (len(found), state.counts.partial_full) == (2, 0)


def test_a_match_has_a_bounded_number_of_events() -> None:
    pattern = compile_pattern("by k match A: a then B{1,}: b then C: c within 1 second", events_per_match_max=3)
    state, found = pattern.advance(pattern.start(), events(pattern, "abbbc"), NEVER_US)
    assert [each.offset for each in found[0].events] == [0, 1, 4]
    assert state.counts.long > 0


def test_events_that_wait_are_bounded() -> None:
    pattern = compile_pattern("by k match A: a within 1 second", events_waiting_max=2)
    state, _ = pattern.advance(pattern.start(), events(pattern, "aaaa"), 0)
    assert (state.counts.waiting_full, state.events_waiting) == (2, 2)


def test_partial_matches_with_one_future_are_kept_once() -> None:
    pattern = compile_pattern("by k match A: a then B: b then C: c within 1 second")
    state, _ = pattern.advance(pattern.start(), events(pattern, "a" + "b" * 500), 1_000)
    assert state.partial_matches == 2
    with_condition = compile_pattern("by k match A: a then B: b then C: c where (C.x > B.x) within 1 second")
    state, _ = with_condition.advance(with_condition.start(), events(with_condition, "a" + "b" * 500), 1_000)
    assert state.partial_matches == 501


def test_nothing_outlives_the_time_of_the_pattern() -> None:
    pattern = compile_pattern("by k match A: a then B: b within 1 second")
    state, _ = pattern.advance(pattern.start(), events(pattern, "aaa"), 1_000_002)
    assert (state.partial_matches, state.due_us) == (1, 1_000_002)
    state, _ = pattern.advance(state, [], 1_000_003)
    assert (state.keys, state.timers) == ({}, [])


def test_late_and_repeated_events_are_counted_and_change_nothing() -> None:
    pattern = compile_pattern("by k match A: a then B: b within 1 second")
    seen = events(pattern, "ab")
    state, found = pattern.advance(pattern.start(), [*seen, *seen], 1)
    assert (state.counts.repeated, state.counts.late, found) == (2, 0, [])
    state, found = pattern.advance(state, seen, NEVER_US)
    assert (state.counts.repeated, state.counts.late, len(found)) == (3, 1, 1)
    state, found = pattern.advance(state, seen, 0)
    assert (state.counts.late, state.watermark_us, found) == (3, NEVER_US, [])


def test_the_state_of_one_key_refuses_what_is_late_by_the_watermark_of_all() -> None:
    pattern = compile_pattern("by k match A: a then B: b within 1 second")
    state, _ = pattern.advance(pattern.start(), events(pattern, "a", 10), 20, late_below_us=15)
    assert (state.counts.late, state.partial_matches) == (1, 0)


def test_the_state_of_another_pattern_and_other_bytes_are_refused() -> None:
    pattern, other = (compile_pattern(f"match A: a within {seconds} seconds") for seconds in (1, 2))
    data = pattern.save(pattern.start())
    assert pattern.load(data) == PatternState()
    for wrong in (b"", b"x", data[:-1], other.save(other.start())):
        with pytest.raises(OtherPattern):
            pattern.load(wrong)


def test_a_long_partial_match_is_stored_with_each_event_once() -> None:
    pattern = compile_pattern("by k match A: a then B{1,}: b then C: c within 1 second", events_per_match_max=1_000)
    state, _ = pattern.advance(pattern.start(), events(pattern, "a" + "b" * 900), 901)
    data = pattern.save(state)
    events_stored, nodes_stored, *_ = msgspec.msgpack.decode(data)["keys"]['["x"]']
    assert (len(events_stored), len(nodes_stored)) == (901, 901)
    loaded = pattern.load(data)
    assert pattern.save(loaded) == data
    _, found = pattern.advance(loaded, events(pattern, "c", 901), NEVER_US)
    assert len(found[0].events) == 902


def test_a_stored_date_is_that_of_a_state_in_memory() -> None:
    pattern = compile_pattern("match A: a then B: b within 1 second emit e with d = A.d, l = A.l")
    date = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    rows = [AcceptedEvent(Event("a", {"d": date, "l": [1, date]}), 0, 0), AcceptedEvent(Event("b", {}), 1, 1)]
    _, (expected,) = pattern.advance(pattern.start(), pattern.classify(rows), NEVER_US)
    state, _ = pattern.advance(pattern.start(), pattern.classify(rows[:1]), 1)
    _, (found,) = pattern.advance(pattern.load(pattern.save(state)), pattern.classify(rows[1:]), NEVER_US)
    assert str(found.attributes) == str(expected.attributes)
