"""Summary of runs, and its goals."""

from __future__ import annotations

from random import Random
from xml.etree import ElementTree

import msgspec
import pytest

from wanderbus.evaluation.grid import APART, GRID, PUBLISHED, Cell, Experiment, Outage
from wanderbus.evaluation.outcome import CellSummary, Outcome, Receipts, goals, outcome, summarize
from wanderbus.evaluation.plan import plan
from wanderbus.evaluation.plots import loss_plot
from wanderbus.evaluation.roaming import Measured

IMPOSED = Experiment(Outage.IMPOSED)
CELL = Cell(100, 60)


def run(cell: Cell, loss_percent: float, *, outage: Outage = Outage.IMPOSED, unaccounted: int = 0) -> Outcome:
    lost = round(loss_percent * 20)
    return Outcome(
        cell=cell,
        outage=outage,
        run=1,
        published=2_000,
        received=2_000 - lost - unaccounted,
        dropped=lost,
        marked=lost,
        repeated=0,
        sample_lost=lost,
        loss_percent=loss_percent,
        changes=1,
        measured=(Measured(9.9, 0.03),),
    )


def published(**changed: float) -> list[Outcome]:
    return [run(cell, changed.get(f"b{cell.buffer}_{cell.period_s}", PUBLISHED[cell])) for cell in GRID]


def met(outcomes: list[Outcome], experiment: Experiment = IMPOSED) -> dict[str, tuple[float, bool]]:
    return {goal.name: (goal.value, goal.met) for goal in goals(summarize(experiment, outcomes))}


def test_only_the_sample_counts_as_loss_and_everything_is_accounted_for() -> None:
    made = plan(Cell(100, 20), IMPOSED, 0.75, Random(1))
    receipts = Receipts()
    place = 0
    for number in range(made.published):
        place += 1
        if 50 <= number < 110:
            continue
        if number == 110:
            receipts.gap(61, place - 1)
        receipts.event(number, place)
    found = outcome(Cell(100, 20), 7, made, receipts, [Measured(9.9, 0.0)] * len(made.changes))
    assert (made.first, found.sample_lost, found.loss_percent) == (100, 10, 0.5)
    assert (found.dropped, found.marked, found.unaccounted) == (60, 61, 0)


def test_missing_and_duplicate_events_are_unaccounted() -> None:
    made = plan(CELL, IMPOSED, 0.5, Random(1))
    receipts = Receipts()
    for number in (*range(made.published - 2), 5):
        receipts.event(number, receipts.place + 1)
    found = outcome(CELL, 7, made, receipts, ())
    assert found.repeated == 1
    assert found.unaccounted == 1 + 1 + len(made.changes)


def test_mean_and_spread() -> None:
    (summary,) = summarize(IMPOSED, [run(CELL, loss) for loss in (4.9, 9.8, 9.8)])
    assert summary.mean_percent == pytest.approx(8.1667, abs=1e-4)
    assert summary.deviation_percent == pytest.approx(2.829, abs=1e-3)
    assert (summary.least_percent, summary.most_percent, summary.runs) == (4.9, 9.8, 3)
    assert summary.difference_points == pytest.approx(8.1667 - 8.38, abs=1e-4)
    assert summary.outages is not None
    assert (summary.outages.p50_s, summary.outages.max_s) == (9.9, 9.9)


def test_the_published_table_meets_its_own_goals() -> None:
    assert met(published()) == {
        "cells_within_5_points": (8, True),
        "trends_broken": (0, True),
        "loss_with_buffer_200_max_percent": (0, True),
        "unaccounted_events": (0, True),
    }


def test_a_cell_five_points_off_is_not_reproduced_unless_it_stands_apart() -> None:
    assert str(APART) == "150/20"
    assert met(published(b100_20=27.67 - 5.1))["cells_within_5_points"] == (7, False)
    assert met(published(b150_20=12.0))["cells_within_5_points"] == (8, True)


def test_a_trend_that_is_broken_is_seen() -> None:
    assert met(published(b100_30=7.0))["trends_broken"] == (2, False)


def test_one_lost_event_of_a_cell_without_loss_is_seen() -> None:
    assert met(published(b200_30=0.05))["loss_with_buffer_200_max_percent"] == (0.05, False)


def test_ours_is_held_to_nothing_lost_at_all() -> None:
    ours = Experiment(Outage.OURS)
    runs = [run(cell, 0.0, outage=Outage.OURS) for cell in GRID]
    assert met(runs, ours) == {"loss_with_ours_max_percent": (0, True), "unaccounted_events": (0, True)}
    runs.append(run(CELL, 0.05, outage=Outage.OURS, unaccounted=3))
    assert met(runs, ours) == {"loss_with_ours_max_percent": (0.05, False), "unaccounted_events": (3, False)}


def test_another_experiment_is_not_compared_with_the_published() -> None:
    assert met(published(), Experiment(Outage.IMPOSED, rate_per_s=10.0)) == {"unaccounted_events": (0, True)}


def test_the_plot_stands_alone() -> None:
    summaries: list[CellSummary] = summarize(IMPOSED, published())
    picture = loss_plot("Loss & more", summaries)
    texts = [each.text for each in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "Loss & more" in texts
    assert "href" not in picture
    assert picture.count("<title>published</title>") == len(GRID)
    assert msgspec.json.encode(summaries)
