"""Matching in turns: together they find what one pass finds, and records repeat them (SPEC T-07)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.patterns.cases import patterns, streams, text_of
from tests.patterns.enumerator import E, P
from tests.patterns.test_bounds import events
from wanderbus.errors import PatternError
from wanderbus.event import Event
from wanderbus.patterns import AcceptedEvent, Pattern, PatternState, Seen, compile_pattern
from wanderbus.patterns.reactions import KNOWN_MAX
from wanderbus.patterns.state import Complete
from wanderbus.patterns.turns import NO_ROOM, TOO_COSTLY, RecordedTurn, Turn

LATE_US = 10**12


def turns(units: list[float], event_max: float = math.inf, kept_max: float = math.inf) -> list[Turn]:
    return [Turn(each, event_max, kept_max) for each in units]


def seen_of(pattern: Pattern, stream: list[E]) -> list[Seen]:
    rows = []
    for offset, event in enumerate(sorted(stream)):
        value = {} if event.value is None else {"v": event.value}
        attributes = {"k": event.key, "kind": event.kind, **value}
        rows.append(AcceptedEvent(Event("event", attributes), offset, round(event.time * 1e6)))
    return pattern.classify(rows)


@settings(max_examples=300, deadline=None)
@given(patterns(), streams(), st.lists(st.integers(1, 20_000), min_size=1, max_size=5), st.booleans())
def test_turns_find_what_one_pass_finds_and_records_of_them_repeat_it(
    pattern: P, stream: list[E], units: list[int], is_stored: bool
) -> None:
    """Also if the state is stored between two turns, and if other bounds apply when they are repeated."""
    try:
        compiled = compile_pattern(text_of(pattern))
    except PatternError:
        return
    seen = seen_of(compiled, stream)
    whole, expected = compiled.advance(compiled.start(), seen, LATE_US)
    state, replayed = (compiled.add(compiled.start(), seen, LATE_US) for _ in range(2))
    found: list[Complete] = []
    for number in range(10_000):
        if state.due_us >= LATE_US:
            break
        found += compiled.match(state, Turn(units[number % len(units)], math.inf, math.inf))
        is_whole = state.due_us >= LATE_US
        record = RecordedTurn(None, None, ()) if is_whole else RecordedTurn(state.steps, state.taken, ())
        compiled.match(replayed, record)
        assert not compiled.match(state, record), "the fold of a record changes nothing that has happened"
        assert compiled.save(replayed) == compiled.save(state)
        if is_stored:
            state = compiled.load(compiled.save(state))
    assert [compiled.detection(each) for each in found] == expected
    assert compiled.save(state) == compiled.save(whole)
    assert state.kept == whole.kept


def test_a_turn_ends_with_its_units_and_goes_on() -> None:
    pattern = compile_pattern("by k match A: a then B: b within 1 second")
    state = pattern.add(pattern.start(), events(pattern, "a" * 50), 100)
    done = []
    while state.due_us < 100:
        turn = Turn(4_000, math.inf, math.inf)
        before = state.counts.events
        pattern.match(state, turn)
        done.append(state.counts.events - before)
        assert turn.units > -3_000
    assert sum(done) == 50
    assert max(done) <= 4
    assert len(done) > 10


def test_detections_are_taken_in_turns_too() -> None:
    pattern = compile_pattern("by k match A: a then B: b within 1 second emit d with t = A.t")
    state = pattern.add(pattern.start(), events(pattern, "a" * 30 + "b"), 100)
    found: list[list[Complete]] = []
    while state.due_us < 100:
        found.append(pattern.match(state, Turn(20_000, math.inf, math.inf)))
    assert sum(map(len, found)) == 30
    assert max(map(len, found)) < 10
    assert state == PatternState(100, counts=state.counts)
    assert state.kept == 0


COSTLY = "match A{1,1000}: a then B: b where ((" + " + ".join(["sum(A.v)"] * 60) + ") == 1.5) within 1 hour"


def test_an_event_that_would_take_too_much_work_is_left_out() -> None:
    pattern = compile_pattern(COSTLY)
    state = pattern.add(pattern.start(), events(pattern, "a" * 20 + "b"), 100)
    (turn,) = turns([math.inf], event_max=100_000)
    assert not pattern.match(state, turn)
    assert [(seen.offset, bound) for seen, bound, _ in turn.left_out] == [(20, TOO_COSTLY)]
    assert turn.left_out[0][2] > 100_000
    assert (state.counts.events, state.counts.left_out) == (20, 1)


def test_an_event_is_left_out_while_more_is_kept_than_may_be() -> None:
    """Events that wait are few, and what is made of them may be much more."""
    pattern = compile_pattern("match A{1,1000}: a then B: b within 1 hour")
    state = pattern.add(pattern.start(), events(pattern, "a" * 100), 200)
    (turn,) = turns([math.inf], kept_max=500)
    pattern.match(state, turn)
    assert {bound for _, bound, _ in turn.left_out} == {NO_ROOM}
    assert 500 < state.kept < 700


def test_events_that_a_record_left_out_are_left_out_again_unseen() -> None:
    pattern = compile_pattern(COSTLY)
    seen = events(pattern, "a" * 20 + "bab")
    state, replayed = (pattern.add(pattern.start(), seen, 100) for _ in range(2))
    (turn,) = turns([math.inf], event_max=100_000)
    pattern.match(state, turn)
    pattern.match(replayed, RecordedTurn(None, None, {each.offset for each, *_ in turn.left_out}))
    assert len(turn.left_out) == 2
    assert pattern.save(replayed) == pattern.save(state)


def test_without_turns_a_bound_of_the_pattern_leaves_out_events_and_counts_them() -> None:
    bounded = compile_pattern(COSTLY, work_per_event_max=100_000)
    state, _ = bounded.advance(bounded.start(), events(bounded, "a" * 20 + "bb"), 100)
    assert (state.counts.events, state.counts.left_out) == (20, 2)


# Text that somebody else chooses --------------------------------------------------------------------------------------


def where(condition: str) -> str:
    return f"match A: a then B: b where ({condition}) within 1 hour"


def test_the_deepest_conditions_are_evaluated() -> None:
    for condition in (
        "(" * 60 + "A.v" + " + 1)" * 60 + " == 61",
        "not " * 60 + "A.v == 1",
        "-" * 60 + "A.v == 1",
        "(" * 60 + "A.v == 1" + " and (true or A.v == 2))" * 60,
        " + ".join(["A.v"] * 64) + " == 64",
    ):
        pattern = compile_pattern(where(condition))
        rows = [AcceptedEvent(Event(subject, {"v": 1}), at, at) for at, subject in enumerate("ab")]
        _, found = pattern.advance(pattern.start(), pattern.classify(rows), 100)
        assert len(found) == 1, condition


@pytest.mark.parametrize("rows", [3, 20, 60])
def test_rows_of_operands_in_each_other_are_refused_before_they_exhaust_the_stack(rows: int) -> None:
    with pytest.raises(PatternError, match="more than 128 operations in each other"):
        compile_pattern(where("(" * 60 + "A.v" + (")" + " + 1" * rows) * 60 + " == 1"))


@pytest.mark.parametrize("pairs", [8, 12, 15])
def test_ways_through_negated_parts_are_counted_while_they_multiply(pairs: int) -> None:
    parts = "".join(f" then (not a{n}: y or not b{n}: y)" for n in range(pairs))
    with pytest.raises(PatternError, match="simplify the pattern"):
        compile_pattern(f"match A: x{parts} then B: y within 1 hour")


def test_tables_of_reactions_are_bounded_whatever_events_publishers_choose() -> None:
    steps = " or ".join(f"S{n}: a (b{n} == 1)" for n in range(16))
    pattern = compile_pattern(f"match A: a then ({steps}) then Z: z within 1 hour")
    tables = pattern._matcher._tables
    state = pattern.start()
    for bits in range(2_000):
        attributes = {f"b{n}": bits >> n & 1 for n in range(16)}
        state, _ = pattern.advance(
            state, pattern.classify([AcceptedEvent(Event("a", attributes), bits, bits)]), bits + 1
        )
    assert tables.made > 2 * KNOWN_MAX
    assert sum(map(len, tables._reactions)) + len(tables._firsts) <= KNOWN_MAX
