"""Grids of experiments on Spark: the same outcomes as direct runs, and the time beside processes of this machine.

The grid is that of ``wanderbus eval``: remedies under random outages, the cells of the table of losses, and merging.
A sample of the points runs once more in this process, and every figure is compared. Times of merging are measured,
and so not compared.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from harness.reporting import Goal, goal, progress
from wanderbus.evaluation import simulated
from wanderbus.evaluation.grid import GRID, OUTAGE_S, Experiment, Outage
from wanderbus.evaluation.merging import measuring
from wanderbus.evaluation.merging.mixes import MIXES
from wanderbus.evaluation.points import MERGING, MOBILITY, PointKind, differing_figures, run_all, run_point
from wanderbus.evaluation.remedies import REMEDIES
from wanderbus.pipeline.grids import run_points
from wanderbus.pipeline.session import spark_session

SEEDS: Final = 12
QUICK_SEEDS: Final = 2
SAMPLE: Final = 0.1
"""Share of the points that run directly too, at least one of each kind of point."""

MERGING_SIZES: Final = (25, 100, 200)


class Measured(NamedTuple):
    """The points of one kind: how many, how many failed, the sample with its differing figures, and the seconds."""

    kind: str
    points: int
    failed: int
    compared: int
    differences: int
    spark_s: float
    processes_s: float


def measure(seeds: int) -> list[Measured]:
    """Run all kinds of points for so many seeds."""
    jobs: dict[PointKind, Sequence[Any]] = {MOBILITY: _mobility(seeds), MERGING: _merging(seeds)}
    spark = spark_session("wanderbus-bench", cores=os.cpu_count() or 1)
    try:
        return [_measured(spark, kind, own) for kind, own in jobs.items()]
    finally:
        spark.stop()


def goals(results: Sequence[Measured]) -> list[Goal]:
    """Return the goals of the grids."""
    points, spark_s = sum(each.points for each in results), sum(each.spark_s for each in results)
    return [
        goal("grid_differences", sum(each.differences for each in results), "figures", most=0),
        goal("grid_points_failed", sum(each.failed for each in results), "points", most=0),
        goal("grid_points", points, "points"),
        goal("grid_points_per_s", points / spark_s, "1/s"),
        goal("grid_vs_processes", sum(each.processes_s for each in results) / spark_s, "ratio"),
    ]


def _mobility(seeds: int) -> list[simulated.Job]:
    remedies = [(one.cell, one.experiment(OUTAGE_S), seed) for one in REMEDIES for seed in range(1, seeds + 1)]
    wanted = [Experiment(each) for each in Outage]
    return [*remedies, *((cell, each, seed) for each in wanted for cell in GRID for seed in range(1, seeds // 4 + 2))]


def _merging(seeds: int) -> list[measuring.Job]:
    some = range(1, seeds // 4 + 2)
    return [measuring.Job(mix, count, seed, MERGING_SIZES, 0.9) for mix in MIXES for count in (2, 4) for seed in some]


def _measured(spark: Any, kind: PointKind, jobs: Sequence[Any]) -> Measured:
    points = [kind.encode(job) for job in jobs]
    for _ in run_points(spark, partial(run_point, kind.name), points[: os.cpu_count()]):
        progress(f"{kind.name}: {len(points)} points on Spark, whose workers have imported the experiments")
    began_s = time.monotonic()
    found = [each for wave in run_points(spark, partial(run_point, kind.name), points) for each in wave]
    spark_s = time.monotonic() - began_s
    sample = random.Random(0).sample(found, max(1, round(SAMPLE * len(found))))
    progress(f"{kind.name}: {len(sample)} of them directly")
    differences = sum(differing_figures(kind, each.parts, run_point(kind.name, each.point)) for each in sample)
    progress(f"{kind.name}: all of them in processes of this machine")
    began_s = time.monotonic()
    for _ in run_all(kind, jobs):
        pass
    processes_s = time.monotonic() - began_s
    failed = sum(each.error is not None for each in found)
    return Measured(kind.name, len(points), failed, len(sample), differences, spark_s, processes_s)
