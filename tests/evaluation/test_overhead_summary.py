"""The four configurations: their turns, and the summary of their results."""

from __future__ import annotations

from random import Random

import pytest

from wanderbus.evaluation.overhead.experiment import Configuration, OverheadExperiment, SampleTurn, rounds
from wanderbus.evaluation.overhead.plots import overhead_plot
from wanderbus.evaluation.overhead.summary import (
    PlaceTimes,
    Sample,
    Slowdown,
    goals,
    ranking,
    small_increase,
    steps,
    summarize,
)

ECI, MOBILE, BESIDE, APART = Configuration
PLACES = PlaceTimes(0.4, {"device-broker": 2.2})


def sample(configuration: Configuration, *sums_s: float, p50_ms: float = 5.0, run: int = 0, missing: int = 0) -> Sample:
    rounds_ms = tuple(sum_s / len(sums_s) for sum_s in sums_s)
    return Sample(run, configuration, len(sums_s), sums_s, 5.0, p50_ms, 6.0, 7.0, 8.0, rounds_ms, missing, 0)


def test_every_configuration_publishes_its_sample_in_turns_of_random_order() -> None:
    turns = list(rounds(OverheadExperiment(), Random(1)))
    assert len(turns) == 100
    for configuration in Configuration:
        own = [turn for each in turns for turn in each if turn.configuration is configuration]
        assert own == [SampleTurn(configuration, 20 * place, 20) for place in range(100)]
    assert len({tuple(turn.configuration for turn in each) for each in turns}) > 10


@pytest.mark.parametrize("events", [1, 3, 10, 101, 250])
def test_a_sample_of_any_size_is_published_in_full(events: int) -> None:
    experiment = OverheadExperiment(configurations=(ECI,), events=events)
    numbers = [turn.first + place for (turn,) in rounds(experiment, Random(1)) for place in range(turn.count)]
    assert numbers == list(range(events))


def test_a_sample_is_what_the_consumers_say() -> None:
    latencies_us = [1_000] * 49 + [2_000] * 46 + [9_000] * 5
    found = Sample.of(0, ECI, [0.1, 0.2], latencies_us, [1.9], missing=1, unanswered=2)
    assert (found.consumers, found.sums_s) == (2, (0.1, 0.2))
    assert (found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms) == (2.0, 9.0, 9.0, 9.0)
    assert found.mean_ms == pytest.approx(1.86)
    assert Sample.of(0, ECI, [0.0], [], [], missing=5, unanswered=0).missing == 5


def test_curves_plot_the_mean_of_the_consumers_sums() -> None:
    first, second = sample(ECI, 1.0, 2.0), sample(ECI, 3.0, 6.0, p50_ms=7.0, run=1, missing=3)
    (found,) = summarize([first, second])
    assert (found.runs, found.sum_s, found.least_s, found.most_s) == (2, 3.0, 1.0, 6.0)
    assert (found.p50_ms, found.missing) == (6.0, 3)


def test_the_ranking_is_that_of_every_number_of_consumers() -> None:
    in_order = [sample(each, float(each)) for each in Configuration]
    swapped = [sample(each, 9.0 - each, 9.0 - each) for each in Configuration]
    assert ranking(summarize(in_order)) == {1: True}
    assert ranking(summarize([*in_order, *swapped])) == {1: True, 2: False}
    assert {goal.name: goal.met for goal in goals(summarize([*in_order, *swapped]), PLACES)}["ranking_holds"] is False


def test_equal_sums_are_no_ranking() -> None:
    assert ranking(summarize(sample(each, 1.0) for each in Configuration)) == {1: False}


def test_an_increase_is_small_beside_that_of_nat_and_a_remote_relay() -> None:
    small = [sample(each, sum_s) for each, sum_s in zip(Configuration, (1.0, 1.4, 1.5, 2.0), strict=True)]
    large = [sample(each, sum_s) for each, sum_s in zip(Configuration, (1.0, 1.5, 1.6, 2.0), strict=True)]
    assert small_increase(summarize(small)) == {1: True}
    assert small_increase(summarize(large)) == {1: False}


def test_mobility_may_cost_a_sync_and_a_millisecond_at_the_worst_number_of_consumers() -> None:
    few = [sample(ECI, 1.0, p50_ms=5.0), sample(MOBILE, 1.0, p50_ms=6.3)]
    many = [sample(ECI, 1.0, 1.0, p50_ms=5.0), sample(MOBILE, 1.0, 1.0, p50_ms=6.5)]
    (met, _), (missed, _) = (goals(summarize(each), PLACES) for each in (few, [*few, *many]))
    assert (met.name, met.value, met.goal, met.met) == ("mdeci_minus_eci_p50_ms", 1.3, 1.4, True)
    assert (missed.value, missed.met) == (1.5, False)


def test_unmeasured_configurations_have_no_goal_and_missing_events_count() -> None:
    (goal,) = goals(summarize([sample(BESIDE, 1.0, missing=2), sample(APART, 1.0)]), PLACES)
    assert (goal.name, goal.value, goal.met) == ("missing_events", 2, False)


def test_steps_compare_round_by_round() -> None:
    """A slowdown of both at once is no difference between them."""
    lower, upper = sample(ECI, 4.0, 40.0, 8.0, 4.0), sample(MOBILE, 6.0, 42.0, 10.0, 6.0)
    assert steps([upper, lower]) == [Slowdown(4, ECI, MOBILE, 0.5, 0.0)]


def test_the_plot_has_a_curve_for_each_configuration() -> None:
    picture = overhead_plot("T", summarize(sample(each, *[1.0] * count) for each in Configuration for count in (1, 2)))
    assert picture.count("<polyline") == 4
    assert "NAT, relay apart, 2 consumers: 1.000 s" in picture
