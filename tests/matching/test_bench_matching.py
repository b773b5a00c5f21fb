"""The benchmark of matching: its workloads are as described, and all compared programs find the same."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from bench import matching as benchmark
from bench import matching_churn
from bench.matching_churn import Churned, Rate
from bench.matching_memory import Grown
from bench.matching_peers import peers
from bench.matching_static import Static
from bench.matching_workload import NAMES, SHAPES, Workload, workload
from wanderbus.event import Event
from wanderbus.filters import Filter, normal_form, parse
from wanderbus.matching import Index

COUNT = 700
EVENTS = 40


def matched(drawn: Workload, count: int) -> list[list[int]]:
    """Return the numbers of the first subscriptions that each event matches, by evaluation."""
    held = [(number, drawn.subject_of(number), drawn.filter(number)) for number in range(count)]
    return [
        [number for number, subject, filter in held if subject == event.subject and filter.matches(event)]
        for event in drawn.events()
    ]


@pytest.mark.parametrize("name", benchmark.STUDIED)
def test_the_kernel_and_the_peers_find_what_evaluation_finds(name: str) -> None:
    drawn = workload(name, COUNT + 50, EVENTS)
    expected = matched(drawn, COUNT)
    static = Static(drawn, COUNT)
    assert sum(map(len, expected)) == static.count(drawn.encoded) > 0
    assert [sorted(static.match(row).tolist()) for row in drawn.encoded] == expected
    for peer, match in peers(drawn, COUNT, static):
        assert (peer, [sorted(each) for each in match(drawn.encoded)]) == (peer, expected)


@pytest.mark.parametrize("name", SHAPES)
def test_few_of_a_thousand_match(name: str) -> None:
    drawn = workload(name, 3_000, EVENTS)
    same = [sum(drawn.subject == subject) for subject in drawn.event_subject]
    assert 0.0005 < sum(map(len, matched(drawn, 3_000))) / sum(same) < 0.01


def test_draws_are_the_same_for_the_same_seed_alone() -> None:
    one, same, other = (workload("dnf", 50, 5, seed) for seed in (1, 1, 2))
    texts = [[str(each.filter(number)) for number in range(50)] for each in (one, same, other)]
    assert texts[0] == texts[1] != texts[2]
    assert np.array_equal(one.encoded, same.encoded)


def test_filters_are_what_a_text_would_be_parsed_to() -> None:
    for name in SHAPES:
        drawn = workload(name, 300, 1)
        for number in range(300):
            filter = drawn.filter(number)
            assert normal_form(parse(str(filter))) == normal_form(filter)


def test_workloads_have_what_their_names_say() -> None:
    texts = {name: " ".join(str(workload(name, 300, 1).filter(number)) for number in range(300)) for name in SHAPES}
    assert "==" in texts["study"]
    assert not any(sign in texts["study"] for sign in (" or ", "!=", "prefix"))
    assert not any(sign in texts["ranges"] for sign in ("==", " or ", "!=", '"'))
    assert all(sign in texts["dnf"] for sign in (" or ", "!=", "prefix", "==", ">="))
    assert len({workload("subjects", 300, 1).subject_of(number) for number in range(300)}) > 50


def test_events_have_ten_to_twenty_attributes_of_their_types() -> None:
    events = workload("study", 1, 200).events()
    assert {len(event.attributes) for event in events} == set(range(10, len(NAMES) + 1))
    types = {(name[0], type(value)) for event in events for name, value in event.attributes.items()}
    assert types == {("s", str), ("i", int), ("d", float)}


# Measuring ----------------------------------------------------------------------------------------------------------


class Noting:
    """An index that matches nothing, and records the events."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.batches: list[int] = []

    def add(self, id: str, subject: str, filter: Filter) -> None:
        self.added.append(id)

    def match(self, events: Sequence[Event]) -> list[list[str]]:
        self.batches.append(len(events))
        return [[] for _ in events]


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock by a hundredth of a second at every reading."""
    ticks: Iterator[float] = (number / 100 for number in range(10**9))
    monkeypatch.setattr(time, "process_time", lambda: next(ticks))


@pytest.mark.usefixtures("ticking")
def test_one_percent_of_the_subscriptions_is_replaced_in_a_second() -> None:
    noting = Noting()
    churned = Churned(workload("study", COUNT + 100, EVENTS), COUNT, lambda: noting)
    churned.build()
    assert (noting.added, noting.batches) == ([str(number) for number in range(COUNT)], [1])
    rate = churned.run(64, least_s=10.0)
    assert rate is not None
    assert (
        rate.updates == len(noting.added) - COUNT == pytest.approx(COUNT / 100 * (rate.match_s + rate.update_s), abs=2)
    )
    assert set(noting.added[COUNT:]) <= {str(number) for number in range(COUNT)}
    assert rate.events == 64 * len(rate.calls_s)
    assert set(noting.batches[1:]) == {64}


def test_a_call_that_would_last_too_long_is_not_made() -> None:
    noting = Noting()
    churned = Churned(workload("study", COUNT + 100, EVENTS), COUNT, lambda: noting)
    churned.build()
    assert churned.run(64, 1.0, expected_s=matching_churn.CALL_S_MAX + 1) is None


@pytest.mark.parametrize("name", SHAPES)
def test_no_difference_after_replacements(name: str) -> None:
    churned = Churned(workload(name, COUNT + 100, EVENTS), COUNT, Index)
    churned.build()
    assert churned.updates_per_s(0.01) > 0
    assert churned.differences(EVENTS) == 0


class Stale(Index):
    """An index that keeps the first filter of each id."""

    def __init__(self) -> None:
        super().__init__()
        self._first: set[str] = set()

    def add(self, id: str, subject: str, filter: Filter) -> None:
        if id not in self._first:
            self._first.add(id)
            super().add(id, subject, filter)


class Doubling(Index):
    """An index that returns every id twice."""

    def match(self, events: Sequence[Event]) -> list[list[str]]:
        return [ids + ids for ids in super().match(events)]


@pytest.mark.parametrize("index", [Stale, Doubling, Noting])
def test_differences_are_seen(index: type[Index]) -> None:
    churned = Churned(workload("study", COUNT + 100, EVENTS), COUNT, index)
    churned.build()
    churned.updates_per_s(0.01)
    assert churned.differences(EVENTS) > 0


def test_goals_have_the_names_and_bounds_that_are_promised() -> None:
    def one(name: str, size: int, per_s: float, static_per_s: float) -> benchmark.Measured:
        rates = {batch: Rate(batch, 100, 10, 0, 100 / per_s, 0.0, [50e-6, 90e-6, 4e-3], 0.0) for batch in (1, 1_024)}
        return benchmark.Measured(name, size, 1.0, rates, 60_000.0, 0, static_per_s, 0.75)

    measured = {
        ("study", 100_000): one("study", 100_000, 35_000, 50_000),
        ("study", 1_000_000): one("study", 1_000_000, 3_000, 5_000),
        ("ranges", 100_000): one("ranges", 100_000, 10_000, 20_000),
        ("dnf", 100_000): one("dnf", 100_000, 20_000, float("nan")),
    }
    goals = {each["name"]: each for each in benchmark._goals(measured, {("study", 100_000): Grown(380.0, 700.0)})}
    bound = {name: each["goal"] for name, each in goals.items() if each["goal"] is not None}
    assert bound == {
        "vs_static_100k": 0.6,
        "vs_static_1m": 0.6,
        "range_only_vs_static": 0.3,
        "dnf_vs_static": 0.3,
        "single_event_100k_us": 100,
        "updates_per_s": 50_000,
        "single_event_longest_ms": 5,
        "bytes_per_subscription": 400,
        "fresh_index_vs_static_100k": 0.7,
        "differences": 0,
    }
    assert goals["vs_static_100k"]["value"] == 0.7
    assert goals["range_only_vs_static"]["value"] == 0.2
    assert goals["dnf_vs_static"]["value"] == 0.4
    assert goals["single_event_100k_us"]["value"] == 90
    assert goals["fresh_index_vs_static_100k"]["value"] == 0.75
    assert [name for name, each in goals.items() if each["met"] is False] == ["range_only_vs_static"]


def test_nothing_measured_meets_nothing_but_that_nothing_differs() -> None:
    assert {each["name"] for each in benchmark._goals({}, {}) if each["met"] is not None} == {"differences"}
