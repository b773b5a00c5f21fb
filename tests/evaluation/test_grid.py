"""The table, the model, and the plan of a run (SPEC R-02, S-08, X34)."""

from __future__ import annotations

from random import Random

import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.grid import GRID, PUBLISHED, Cell, Experiment, Outage, model_loss_percent
from wanderbus.evaluation.plan import CONNECTED_S_MIN, plan

IMPOSED = Experiment(Outage.IMPOSED)


def test_the_published_table() -> None:
    assert [PUBLISHED[Cell(buffer, period)] for buffer in (100, 150, 200) for period in (60, 30, 20)] == [
        *(8.38, 13.94, 27.67),
        *(4.21, 7.77, 27.55),
        *(0.0, 0.0, 1.22),
    ]


@pytest.mark.parametrize(
    ("cell", "outage_s", "loss"),
    [
        (Cell(100, 60), 10.0, 8.33),
        (Cell(100, 30), 10.0, 16.67),
        (Cell(150, 20), 10.0, 12.5),
        (Cell(200, 20), 10.0, 0.0),
        (Cell(100, 20), 9.9, 24.5),
    ],
)
def test_the_model(cell: Cell, outage_s: float, loss: float) -> None:
    assert model_loss_percent(cell, Experiment(Outage.IMPOSED, outage_s)) == pytest.approx(loss, abs=0.005)


def test_the_model_of_ours_and_of_random_outages() -> None:
    assert {model_loss_percent(cell, Experiment(Outage.OURS)) for cell in GRID} == {0.0}
    # A buffer that is full after the mean outage still loses to the longer half of them.
    assert model_loss_percent(Cell(200, 60), Experiment(Outage.RANDOM, 10.0)) == pytest.approx(
        10 / 3 * 20 / 20, abs=0.01
    )


def test_limiting_the_rate_prevents_loss() -> None:
    assert model_loss_percent(Cell(100, 20), Experiment(Outage.IMPOSED, rate_per_s=10.0)) == 0.0


def test_a_cell_is_named_by_buffer_and_period() -> None:
    assert [Cell.parse(str(cell)) for cell in GRID] == list(GRID)
    with pytest.raises(ConfigurationError, match=r"no cell '100/61'; cells are 100/60, .*200/20"):
        Cell.parse("100/61")


@pytest.mark.parametrize(("period", "moments"), [(60, [30, 90]), (30, [15, 45, 75]), (20, [10, 30, 50, 70, 90])])
def test_midway_between_changes_a_sample_has_whole_ones(period: int, moments: list[int]) -> None:
    made = plan(Cell(100, period), IMPOSED, 0.5, Random(1))
    assert [change.at_s for change in made.changes] == moments
    assert (made.begin_s, made.first) == (0.0, 0)
    assert made.published - 2_000 <= 2


def test_a_change_under_way_when_the_sample_begins_is_part_of_the_run() -> None:
    made = plan(Cell(100, 20), IMPOSED, 0.75, Random(1))
    assert made.changes[0].at_s == -5.0
    assert (made.begin_s, made.first) == (-5.0, 100)
    assert made.at_s(made.first) == 0.0


@pytest.mark.parametrize("outage", list(Outage))
def test_publishing_outlasts_every_outage_and_outages_leave_time_between_them(outage: Outage) -> None:
    for seed in range(200):
        chance = Random(seed)
        cell = chance.choice(GRID)
        made = plan(cell, Experiment(outage), chance.random(), chance)
        ends = [change.at_s + change.outage_s for change in made.changes]
        assert made.end_s > max(ends), seed
        assert made.begin_s <= min(0.0, made.changes[0].at_s) + 0.05, seed
        assert made.published >= made.first + 2_000, seed
        for end, after in zip(ends, made.changes[1:], strict=False):
            assert after.at_s - end >= CONNECTED_S_MIN, seed


def test_over_phases_the_number_of_changes_is_that_of_the_model() -> None:
    """Edges lose as the middle does: away time in the samples adds up to n times the outage."""
    phases = 500
    away_s = 0.0
    for step in range(phases):
        for change in plan(Cell(100, 30), IMPOSED, step / phases, Random(1)).changes:
            away_s += min(100.0, change.at_s + change.outage_s) - max(0.0, change.at_s)
    assert away_s / phases == pytest.approx(100 / 30 * 9.9, rel=0.01)


def test_an_outage_longer_than_the_period_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no time between changes every 20 s"):
        plan(Cell(100, 20), Experiment(Outage.IMPOSED, 19.5), 0.5, Random(1))
