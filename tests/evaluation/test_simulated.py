"""Runs in virtual time: the whole stack loses as much as the model predicts, and every event is accounted for (SPEC
R-02).
"""

from __future__ import annotations

import pytest

from wanderbus.evaluation.grid import GRID, OUTAGE_S, RATE_PER_S, Cell, Experiment, Outage, model_loss_percent
from wanderbus.evaluation.simulated import SimulatedRun, run_one

SHORT = 700
"""Events: enough for a change or two."""


def test_the_same_seed_gives_the_same_run() -> None:
    job = (Cell(100, 20), Experiment(Outage.IMPOSED, events=SHORT), 3)
    assert run_one(job) == run_one(job)


@pytest.mark.parametrize("buffer", [100, 150, 200])
def test_events_above_the_buffer_are_lost(buffer: int) -> None:
    cell, experiment = Cell(buffer, 20), Experiment(Outage.IMPOSED, events=SHORT)
    run = SimulatedRun(cell, experiment, 1)
    found = run.run()
    outages = [one.outage_s for one in found.measured]
    assert outages == pytest.approx([9.9] * found.changes, abs=0.05), "seed 1"
    assert found.unaccounted == 0
    assert found.dropped == pytest.approx(found.changes * max(0.0, 198 - buffer), abs=found.changes)


@pytest.mark.integration
@pytest.mark.parametrize("cell", GRID, ids=str)
def test_r02_every_cell_of_the_table_loses_what_its_changes_and_its_buffer_make(cell: Cell) -> None:
    """A change each minute, each half and each third of one; 200 events are enough but for what arrives too late."""
    found = run_one((cell, Experiment(Outage.IMPOSED), 1))
    assert found.changes == pytest.approx(found.published / (RATE_PER_S * cell.period_s), abs=1)
    assert found.unaccounted == 0
    each_loses = max(0.0, RATE_PER_S * OUTAGE_S - cell.buffer)
    assert found.dropped == pytest.approx(found.changes * each_loses, abs=found.changes)


def test_a_new_address_at_once_loses_nothing() -> None:
    found = run_one((Cell(100, 20), Experiment(Outage.OURS, events=SHORT), 2))
    assert (found.loss_percent, found.dropped, found.unaccounted) == (0.0, 0, 0), "seed 2"
    assert all(one.outage_s < 0.2 for one in found.measured)


@pytest.mark.integration
def test_random_outages_lose_about_as_the_model_predicts() -> None:
    cell, experiment = Cell(100, 30), Experiment(Outage.RANDOM, events=SHORT)
    found = [run_one((cell, experiment, seed)) for seed in range(1, 9)]
    assert sum(each.unaccounted for each in found) == 0
    mean = sum(each.loss_percent for each in found) / len(found)
    assert 0.3 < mean / model_loss_percent(cell, experiment) < 2.0, "seeds 1 to 8"


def test_a_limited_rate_prevents_loss() -> None:
    limited = Experiment(Outage.IMPOSED, rate_per_s=10.0, events=SHORT // 2)
    found = run_one((Cell(100, 20), limited, 1))
    assert (found.changes > 0, found.dropped) == (True, 0), "seed 1"
