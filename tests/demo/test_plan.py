"""The cast, its expected events, and the plan of the roaming."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import ARRIVAL, DEPARTURE, SUBJECTS, flights
from demo.airlines import AIRLINES, PLACES, SERVICES, STAYS
from demo.airlines import TRAVELLERS as AIRLINE_TRAVELLERS
from demo.expected import expected_events
from demo.plan import SERVER_KILL_AT, SWITCH_ON_AT, Action, domain_plan, domains_plan, plan
from demo.users import TRAVELLERS, User
from wanderbus import filters


def test_eight_users_with_several_readable_subscriptions_and_one_control() -> None:
    assert len({user.uri for user in TRAVELLERS}) == 8
    assert sum(not user.moves for user in TRAVELLERS) == 1
    for user in TRAVELLERS:
        assert len(user.subscriptions) >= 2
        for _, text in user.subscriptions:
            filters.parse(text)
    wanted = {subject for user in TRAVELLERS for subject, _ in user.subscriptions}
    assert wanted == set(SUBJECTS)
    assert {subject for user in TRAVELLERS if not user.moves for subject, _ in user.subscriptions} == set(SUBJECTS)


def test_the_smallest_slice_is_worth_a_thousand_notifications_and_has_overlaps() -> None:
    events = list(flights.events(0, 3_000))
    due = expected_events(TRAVELLERS, events)
    assert sum(map(len, due.values())) >= 1_000
    assert sum(each.subject == ARRIVAL for every in due.values() for each in every) >= 500
    apart = [User(user.name, (text,)) for user in TRAVELLERS for text in user.departures]
    apart += [User(user.name, (), (text,)) for user in TRAVELLERS for text in user.arrivals]
    singly = sum(len(expected_events([one], events)[one.uri]) for one in apart)
    assert singly > sum(map(len, due.values()))


def test_expected_counts_a_row_once_and_never_where_the_answer_is_unknown() -> None:
    events: list[tuple[str, dict[str, Any]]] = [
        (DEPARTURE, {"Row": 7, "Dest": "IAH", "DepDelay": 40}),
        (DEPARTURE, {"Row": 8, "Dest": "IAH"}),
        (ARRIVAL, {"Row": 7, "Dest": "IAH", "DepDelay": 40}),
        (DEPARTURE, {"Row": 9, "DepDelay": 3}),
    ]
    users = [
        User("one", ("Dest == IAH", "DepDelay > 30")),
        User("two", ("not (DepDelay <= 30)",)),
        User("three", (), ("Dest == IAH",)),
    ]
    assert expected_events(users, events) == {
        "sip:one@localhost": [(DEPARTURE, 7), (DEPARTURE, 8)],
        "sip:two@localhost": [(DEPARTURE, 7)],
        "sip:three@localhost": [(ARRIVAL, 7)],
    }


@given(st.integers(0, 10_000))
def test_every_plan_moves_often_and_harms_two_and_the_server(seed: int) -> None:
    steps = plan(TRAVELLERS, seed)
    assert steps == plan(TRAVELLERS, seed)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert all(0.0 < step.at < 1.0 for step in steps)
    deeds = [step.action for step in steps]
    assert deeds.count(Action.MOVE) >= 12
    for action in (Action.SWITCH_OFF, Action.SWITCH_ON, Action.KILL, Action.KILL_SERVER):
        assert deeds.count(action) == 1
    who = {step.action: step.name for step in steps}
    assert who[Action.SWITCH_OFF] == who[Action.SWITCH_ON] != who[Action.KILL]
    controls = {user.name for user in TRAVELLERS if not user.moves}
    assert controls.isdisjoint({step.name for step in steps})


@given(st.integers(0, 10_000))
def test_spark_is_killed_once_if_it_matches_all_and_nothing_else_changes(seed: int) -> None:
    steps = plan(TRAVELLERS, seed, kills_spark=True)
    assert [step for step in steps if step.action is not Action.KILL_SPARK] == plan(TRAVELLERS, seed)
    assert len(steps) == len(plan(TRAVELLERS, seed)) + 1


@given(st.integers(0, 10_000))
def test_nobody_moves_while_off_or_as_they_are_killed(seed: int) -> None:
    steps = plan(TRAVELLERS, seed)
    at = {step.action: step for step in steps}
    moves = [step for step in steps if step.action is Action.MOVE]
    off, on, kill = at[Action.SWITCH_OFF], at[Action.SWITCH_ON], at[Action.KILL]
    assert all(not off.at <= move.at <= on.at for move in moves if move.name == off.name)
    assert all(abs(move.at - kill.at) > 0.05 for move in moves if move.name == kill.name)
    for name, times in itertools.groupby(sorted(moves, key=lambda move: move.name), key=lambda move: move.name):
        assert len(list(times)) == 2, name


@pytest.mark.parametrize("count", [3, 7])
def test_a_plan_needs_three_who_move(count: int) -> None:
    users = [User(f"p{n}", ("",)) for n in range(count)]
    assert sum(step.action is Action.MOVE for step in plan(users, 1)) == 2 * count


def test_several_servers_are_killed_one_after_the_other() -> None:
    kills = [step for step in plan(TRAVELLERS, 3, killed_servers=("s2", "s4")) if step.action is Action.KILL_SERVER]
    assert [step.name for step in kills] == ["s2", "s4"]
    assert SERVER_KILL_AT == kills[0].at < kills[1].at < SWITCH_ON_AT


def test_a_domain_drains_a_server_before_the_kills_and_moves_a_group_after_them() -> None:
    steps = domain_plan(TRAVELLERS, 3, access="s2", drained="s3", leader="s4", to="s5")
    own = {Action.DRAIN, Action.END_DRAIN, Action.MOVE_GROUP}
    assert [step for step in steps if step.action not in own] == plan(TRAVELLERS, 3, killed_servers=("s2", "s4"))
    places = [(step.action, step.name) for step in steps if step.action in own or step.action is Action.KILL_SERVER]
    assert places == [
        (Action.DRAIN, "s3"),
        (Action.END_DRAIN, "s3"),
        (Action.KILL_SERVER, "s2"),
        (Action.KILL_SERVER, "s4"),
        (Action.MOVE_GROUP, "s4"),
    ]


@given(st.integers(0, 10_000))
def test_travellers_of_domains_fly_aboard_and_on_and_one_has_no_network(seed: int) -> None:
    steps = domains_plan(AIRLINE_TRAVELLERS, PLACES, SERVICES, "united.example", seed)
    assert steps == domains_plan(AIRLINE_TRAVELLERS, PLACES, SERVICES, "united.example", seed)
    assert all(0.0 < step.at < 1.0 for step in steps)
    assert [step.name for step in steps if step.action is Action.CUT] == ["united.example"]
    for user in AIRLINE_TRAVELLERS:
        own = [step for step in steps if step.name == user.name]
        moves = [step.to for step in own if step.action is Action.MOVE]
        assert moves == (["aboard", "in Europe", "aboard", "at home", "aboard", "in Europe"] if user.moves else [])
    off = [step for step in steps if step.action in (Action.SWITCH_OFF, Action.SWITCH_ON)]
    assert [step.action for step in off] == [Action.SWITCH_OFF, Action.SWITCH_ON]
    [sleeper] = {step.name for step in off}
    moves_away = [step.at for step in steps if step.name == sleeper and off[0].at <= step.at <= off[1].at]
    assert len(moves_away) == 4  # off, two moves, on


@given(st.integers(0, 10_000))
def test_sessions_of_travellers_go_to_the_partner_of_their_airline_and_home_again(seed: int) -> None:
    steps = domains_plan(AIRLINE_TRAVELLERS, PLACES, SERVICES, "united.example", seed)
    [visit] = [step for step in steps if step.action is Action.SWITCH_ON]
    for user in AIRLINE_TRAVELLERS:
        [airline] = [each for each in AIRLINES if each.domain == user.domain]
        moves = [step for step in steps if step.name == user.name and step.action is Action.TAKE_SESSION]
        visits = [visit.to] if visit.name == user.name else []
        sessions = [*visits, *(step.to for step in moves)]
        takes = user.moves and user.name != STAYS
        assert sessions == ([airline.partner, airline.domain, airline.partner] if takes else [])
        landings = [step.at for step in steps if step.name == user.name and step.to in PLACES[::2]]
        assert takes is all(step.at in landings for step in moves) or not moves
    assert "united.example" not in {domain for (name, _), domain in SERVICES.items() if name == visit.name}
