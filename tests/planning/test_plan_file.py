"""The file of a plan, and the loads in it (SPEC T-10)."""

from __future__ import annotations

import json

import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.planning import (
    Activity,
    SubjectInterest,
    Weights,
    decode_plan,
    encode_plan,
    load_us,
    loads_of,
    make_plan,
)
from wanderbus.planning.servers import hashed_server

LOADS = {"Departure": 700, "Arrival": 400, "Gate": 300, 'a "name"\n': 0}


def test_a_plan_survives_its_file() -> None:
    plan = make_plan(LOADS, 2)
    assert decode_plan(encode_plan(plan), "plan.json") == plan
    written = json.loads(encode_plan(plan))
    assert written["form"] == "wanderbus-plan-1"
    assert [each["load_us"] for each in written["servers"]] == [700, 700]
    assert written["subjects"]["Departure"]["load_us"] == 700
    assert "moves_from" not in written["subjects"]["Departure"]


def test_figures_compare_with_the_hash_and_with_the_least_possible() -> None:
    figures = make_plan(LOADS, 2).figures
    by_hash = [sum(load for subject, load in LOADS.items() if hashed_server(subject, 2) == n) for n in range(2)]
    assert figures.load_us_max_hashed == max(by_hash)
    assert figures.load_us_max == figures.load_us_least_max == 700
    assert figures.max_load_vs_hash == 700 / max(by_hash)
    assert make_plan({}, 2).figures.max_load_vs_hash == 1.0


def test_a_present_plan_keeps_moves_few_and_names_them() -> None:
    present = make_plan(LOADS, 2)
    changed = {**LOADS, "Gate": 500, "Baggage": 400}
    plan = make_plan(changed, 3, present.server_of)
    for subject, placed in plan.subjects.items():
        before = present.server_of(subject)
        assert placed.moves_from == (before if before != placed.server else None)
    assert plan.figures.moved_subjects == sum(each.moves_from is not None for each in plan.subjects.values()) > 0
    again = make_plan(changed, 3, plan.server_of)
    assert (again.figures.moved_subjects, again.figures.moved_load_us) == (0, 0)


def test_a_subject_that_no_plan_names_has_the_server_of_its_hash() -> None:
    plan = make_plan(LOADS, 3)
    assert plan.server_of("Departure") == plan.subjects["Departure"].server
    assert plan.server_of("unheard") == hashed_server("unheard", 3) + 1


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"form": "other"}, "its form is 'other'"),
        ({"servers": []}, "not numbered from 1 on"),
        ({"subjects": {"a": {"server": 3, "load_us": 1}}}, "it places 'a' on server 3"),
        ({"subjects": {"a": {"server": 1, "load_us": -1}}}, "the load of 'a' is -1"),
        ({"subjects": {"a": 1}}, r"\$.subjects"),
    ],
)
def test_a_faulty_file_is_refused_with_its_fault(change: dict[str, object], fault: str) -> None:
    data = json.dumps(json.loads(encode_plan(make_plan(LOADS, 2))) | change).encode()
    with pytest.raises(ConfigurationError, match=f"^p.json is not a plan: .*{fault}"):
        decode_plan(data, "p.json")


def test_bytes_that_are_no_json_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^p\.json is not a plan: "):
        decode_plan(b"\xff{", "p.json")


def test_the_load_has_a_part_for_each_count() -> None:
    weights = Weights(event_us=10, notification_us=5, filter_us=0.5, log_byte_us=0.01)
    assert load_us(Activity(events=2), SubjectInterest(), weights) == 20
    assert (
        load_us(Activity(events=2), SubjectInterest(subscriptions=90, filters=80, uncovered=70, merged=6), weights)
        == 26
    )
    assert load_us(Activity(notifications=4, log_bytes=300), SubjectInterest(merged=6), weights) == 23


def test_subjects_with_events_or_with_subscriptions_have_a_load() -> None:
    loads = loads_of({"b": Activity(events=1)}, {"a": SubjectInterest(merged=4)})
    assert list(loads.items()) == [("a", 0), ("b", 35)]


def test_interest_in_every_subject_counts_for_each_and_is_no_subject() -> None:
    interests = {"a": SubjectInterest(merged=4), "*": SubjectInterest(merged=6)}
    weights = Weights(event_us=1, filter_us=1)
    activities = {"a": Activity(events=2), "b": Activity(events=1)}
    assert loads_of(activities, interests, weights) == {"a": 22, "b": 7}
