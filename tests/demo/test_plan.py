"""The cast, its expected events, and the plan of the roaming."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import flights
from demo.expected import expected_rows
from demo.people import TRAVELLERS, Person
from demo.roaming import Deed, plan
from wanderbus import filters


def test_eight_users_with_several_readable_subscriptions_and_one_control() -> None:
    assert len({person.user for person in TRAVELLERS}) == 8
    assert sum(not person.moves for person in TRAVELLERS) == 1
    for person in TRAVELLERS:
        assert len(person.subscriptions) >= 2
        for text in person.subscriptions:
            filters.parse(text)


def test_the_smallest_slice_is_worth_a_thousand_notifications_and_has_overlaps() -> None:
    departures = list(flights.read_slice(0, 5_000))
    due = expected_rows(TRAVELLERS, departures)
    assert sum(map(len, due.values())) >= 1_000
    apart = [Person(person.name, (text,)) for person in TRAVELLERS for text in person.subscriptions]
    singly = sum(len(expected_rows([one], departures)[one.user]) for one in apart)
    assert singly > sum(map(len, due.values()))


def test_expected_counts_a_row_once_and_never_where_the_answer_is_unknown() -> None:
    departures: list[dict[str, Any]] = [
        {"Row": 7, "Dest": "IAH", "DepDelay": 40},
        {"Row": 8, "Dest": "IAH"},
        {"Row": 9, "DepDelay": 3},
    ]
    people = [Person("one", ("Dest == IAH", "DepDelay > 30")), Person("two", ("not (DepDelay <= 30)",))]
    assert expected_rows(people, departures) == {"sip:one@localhost": [7, 8], "sip:two@localhost": [7]}


@given(st.integers(0, 10_000))
def test_every_plan_moves_often_and_harms_two_and_the_server(seed: int) -> None:
    steps = plan(TRAVELLERS, seed)
    assert steps == plan(TRAVELLERS, seed)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert all(0.0 < step.at < 1.0 for step in steps)
    deeds = [step.deed for step in steps]
    assert deeds.count(Deed.MOVE) >= 12
    for deed in (Deed.SWITCH_OFF, Deed.SWITCH_ON, Deed.KILL, Deed.KILL_SERVER):
        assert deeds.count(deed) == 1
    who = {step.deed: step.name for step in steps}
    assert who[Deed.SWITCH_OFF] == who[Deed.SWITCH_ON] != who[Deed.KILL]
    controls = {person.name for person in TRAVELLERS if not person.moves}
    assert controls.isdisjoint({step.name for step in steps})


@given(st.integers(0, 10_000))
def test_nobody_moves_while_off_or_as_they_are_killed(seed: int) -> None:
    steps = plan(TRAVELLERS, seed)
    at = {step.deed: step for step in steps}
    moves = [step for step in steps if step.deed is Deed.MOVE]
    off, on, kill = at[Deed.SWITCH_OFF], at[Deed.SWITCH_ON], at[Deed.KILL]
    assert all(not off.at <= move.at <= on.at for move in moves if move.name == off.name)
    assert all(abs(move.at - kill.at) > 0.05 for move in moves if move.name == kill.name)
    for name, times in itertools.groupby(sorted(moves, key=lambda move: move.name), key=lambda move: move.name):
        assert len(list(times)) == 2, name


@pytest.mark.parametrize("count", [3, 7])
def test_a_plan_needs_three_who_move(count: int) -> None:
    people = [Person(f"p{n}", ("",)) for n in range(count)]
    assert sum(step.deed is Deed.MOVE for step in plan(people, 1)) == 2 * count
