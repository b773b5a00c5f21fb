"""The automaton against a brute-force enumerator that shares no code with it (SPEC T-07, S-06)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tests.patterns.cases import SECOND_US, found, occurrence, patterns, run, streams, text_of
from tests.patterns.enumerator import And, E, Found, Not, Or, P, S, Seq, matches
from wanderbus.patterns import Detection, Pattern, PatternError, compile_pattern

WITHOUT_MEANING = ("begin with 'not'", "must take", "never comes", "stands behind 'not'", "up to here", "'and'")


def compiled(pattern: P) -> Pattern:
    """Return the compiled pattern; reject a case that has no meaning."""
    try:
        return compile_pattern(text_of(pattern), partial_matches_max=100_000)
    except PatternError as error:
        assume(not any(known in error.reason for known in WITHOUT_MEANING))
        raise


def batches(events: Sequence[E], cuts: Sequence[int]) -> list[Sequence[E]]:
    """Return the events divided at some places."""
    places = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    return [events[one:other] for one, other in pairwise(places)]


@settings(max_examples=500)
@given(patterns(), streams())
def test_detections_are_those_of_the_enumerator(pattern: P, events: list[E]) -> None:
    expected = matches(pattern, events)
    event(f"{min(len(expected), 5)} detections")
    assert found(run(compiled(pattern), events), events) == expected


A, B, C = S("A", "a"), S("B", "b"), S("C", "c")
STREAM = [
    E(time, offset, "x", kind, value)
    for offset, (time, kind, value) in enumerate(
        [(0, "a", 1), (1, "b", 1), (1, "b", 2), (2, "c", 3), (3, "a", 2), (4, "b", 5), (6, "c", 0), (9, "a", 1)]
    )
]


@pytest.mark.parametrize("mode", ["first", "every", "past"])
@pytest.mark.parametrize(
    "root",
    [
        Seq((A, B), (False,)),
        Seq((A, B), (True,)),
        Seq((A, Not(C), B), (False, False)),
        Seq((A, Not(C)), (False,)),
        Seq((A, S("B", "b", None, 1, None), C), (False, False)),
        Seq((A, S("B", "b", ("more", "A"), 2, 3)), (False,)),
        Seq((A, S("B", "b", None, 0, 1), C), (False, True)),
        Seq((A, Or((B, C))), (False,)),
        Seq((A, And((B, C))), (False,)),
        Seq((A, And((S("B", "b", None, 1, 2), C)), Not(S("D", "a"))), (False, False)),
    ],
    ids=["then", "next", "not between", "not behind", "many", "where", "optional", "or", "and", "and, not"],
)
def test_each_construct_has_detections_and_they_are_those_of_the_enumerator(root: object, mode: str) -> None:
    pattern = P(root, 5, mode)
    expected = matches(pattern, STREAM)
    assert expected
    assert found(run(compiled(pattern), STREAM), STREAM) == expected


def test_a_condition_two_steps_later_finds_the_earlier_event_that_it_needs() -> None:
    pattern = P(Seq((A, B, C, S("D", "a", ("more", "B"))), (False, False, False)), 9, "first")
    rows = [("a", 0), ("b", 5), ("b", 1), ("c", 0), ("a", 2)]
    events = [E(place, place, "x", kind, value) for place, (kind, value) in enumerate(rows)]
    assert matches(pattern, events) == [Found(4, ((0, 0, "A"), (2, 2, "B"), (3, 3, "C"), (4, 4, "D")))]
    assert found(run(compiled(pattern), events), events) == matches(pattern, events)


def test_two_absences_of_which_either_may_fail_are_kept_apart() -> None:
    either = Or((Seq((Not(B), S("X", "c", None, 0, 1)), (False,)), Seq((Not(C), S("Y", "b", None, 0, 1)), (False,))))
    pattern = P(Seq((A, either), (False,)), 3, "every")
    for kinds in ("a", "ab", "ac", "abc", "acb"):
        events = [E(place, place, "x", kind, None) for place, kind in enumerate(kinds)]
        expected = matches(pattern, events)
        assert found(run(compiled(pattern), events), events) == expected
        assert any(len(match.events) == 1 for match in expected) == (len(kinds) < 3)


def test_the_enumerator_finds_the_matches_that_one_counts_by_hand() -> None:
    then = P(Seq((A, B), (False,)), 5, "every")
    pairs = [[offset for _, offset, _ in match.events] for match in matches(then, STREAM)]
    assert pairs == [[0, 1], [0, 2], [0, 5], [4, 5]]
    first = [[offset for _, offset, _ in match.events] for match in matches(then._replace(mode="first"), STREAM)]
    assert first == [[0, 1], [4, 5]]
    absent = P(Seq((A, Not(C)), (False,)), 2, "first")
    assert matches(absent, STREAM) == [Found(5, ((3, 4, "A"),)), Found(11, ((9, 7, "A"),))]


@settings(max_examples=200)
@given(
    patterns(),
    streams(12),
    st.integers(0, 4),
    st.lists(st.integers(0, 14), max_size=4),
    st.randoms(use_true_random=False),
)
def test_order_within_the_lateness_repeats_batches_and_restarts_change_nothing(
    pattern: P, events: list[E], lateness: int, cuts: list[int], random: object
) -> None:
    """An event comes at most ``lateness`` seconds after a later one, some twice; each cut saves the state."""
    machine = compiled(pattern)
    expected = run(machine, events)
    delay = {each: random.uniform(0, lateness) for each in events}  # type: ignore[attr-defined]
    arriving = sorted(events, key=lambda each: each.time + delay[each])
    repeated = [each for each in arriving for _ in range(random.choice((1, 1, 2)))]  # type: ignore[attr-defined]
    state, latest, got = machine.start(), 0, list[Detection]()
    for batch in batches(repeated, cuts):
        latest = max([latest, *(each.time for each in batch)])
        seen = machine.classify(map(occurrence, batch))
        state, detections = machine.advance(state, seen, machine.watermark_us((latest - lateness) * SECOND_US))
        got += detections
        state = machine.load(machine.save(state))
    late = state.counts.late
    state, detections = machine.advance(state, [], 2**62)
    assert [each.id for each in got + detections] == [each.id for each in expected]
    assert got + detections == expected
    assert late <= len(repeated) - len(events), "only repeats are late"


@settings(max_examples=150)
@given(patterns(), streams(12))
def test_a_state_can_be_saved_after_every_event(pattern: P, events: list[E]) -> None:
    machine = compiled(pattern)
    ordered = sorted(events)
    saved, got = machine.save(machine.start()), list[Detection]()
    for each in ordered:
        state, detections = machine.advance(
            machine.load(saved), machine.classify([occurrence(each)]), each.time * SECOND_US
        )
        got += detections
        saved = machine.save(state)
        assert machine.load(saved).due_us == state.due_us
    _, detections = machine.advance(machine.load(saved), [], 2**62)
    assert got + detections == run(machine, events)


@settings(max_examples=200)
@given(patterns(), streams(12))
def test_a_state_for_each_key_finds_the_same_as_one_for_all(pattern: P, events: list[E]) -> None:
    machine = compiled(pattern)
    keys = {each.key for each in events}
    apart = [each for key in sorted(keys) for each in run(machine, [one for one in events if one.key == key])]
    assert sorted(each.id for each in apart) == sorted(each.id for each in run(machine, events))
