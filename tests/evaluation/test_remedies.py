"""Remedies under random outages, in virtual time with a fixed seed (SPEC S-08)."""

from __future__ import annotations

import pytest

from wanderbus.evaluation.plots import remedies_plot
from wanderbus.evaluation.remedies import BUFFERS, NONE, RATES, REMEDIES, Remedied, Remedy, goals, summarize
from wanderbus.evaluation.simulated import SimulatedRun, run_one

OUTAGE_S = 9.9
SEEDS = (1,)


def measured(remedy: Remedy) -> Remedied:
    experiment = remedy.experiment(OUTAGE_S)
    return summarize(remedy, OUTAGE_S, [run_one((remedy.cell, experiment, seed)) for seed in SEEDS])


def of(remedy: Remedy, mean_percent: float) -> Remedied:
    return Remedied(remedy, 3, 0.0, mean_percent, mean_percent, mean_percent, 0, 17.0, 0)


@pytest.fixture(scope="module")
def without() -> Remedied:
    return measured(NONE)


def test_all_remedies_of_a_seed_are_held_to_the_same_outages() -> None:
    plans = [SimulatedRun(each.cell, each.experiment(OUTAGE_S), 7).plan for each in REMEDIES]
    assert len({plan.changes for plan in plans}) == 1
    lengths = [change.outage_s for change in plans[0].changes]
    assert len(set(lengths)) == len(lengths) >= 3


@pytest.mark.integration
def test_s08_a_larger_buffer_loses_less_and_a_large_one_nothing(without: Remedied) -> None:
    larger, largest = measured(Remedy(buffer=200)), measured(BUFFERS[-1])
    assert without.mean_percent > larger.mean_percent > largest.mean_percent == 0.0, f"seed {SEEDS[0]}"
    assert without.unaccounted == larger.unaccounted == largest.unaccounted == 0


@pytest.mark.integration
def test_s08_a_limited_rate_loses_a_smaller_share_and_a_low_one_nothing(without: Remedied) -> None:
    limited, lowest = measured(Remedy(rate_per_s=15.0)), measured(RATES[-1])
    assert without.mean_percent > limited.mean_percent > lowest.mean_percent == 0.0, f"seed {SEEDS[0]}"
    assert without.unaccounted == limited.unaccounted == lowest.unaccounted == 0


def test_goals_see_a_remedy_that_does_not_help() -> None:
    falling = dict(zip(BUFFERS, (20.0, 12.0, 5.0, 1.0, 0.0), strict=True)) | dict(
        zip(RATES, (20.0, 9.0, 2.0, 0.0), strict=True)
    )
    assert all(goal.met for goal in goals(of(*each) for each in falling.items()))
    falling[Remedy(buffer=200)] = 12.0
    unmet = [goal.name for goal in goals(of(*each) for each in falling.items()) if not goal.met]
    assert unmet == ["larger_buffer_no_better"]
    falling[RATES[-1]] = 0.1
    unmet = [goal.name for goal in goals(of(*each) for each in falling.items()) if not goal.met]
    assert unmet == ["larger_buffer_no_better", "limited_rate_loss_percent"]


def test_the_picture_has_a_bar_for_each() -> None:
    picture = remedies_plot([of(each, 5.0) for each in REMEDIES])
    assert picture.count("5.00 %") == len(REMEDIES)
