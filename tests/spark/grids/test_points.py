"""Points of a grid on Spark: each equals a direct run, and one that fails ends no other (SPEC T-09)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from wanderbus.evaluation import simulated
from wanderbus.evaluation.federation.experiment import FederationJob, Topology, Way
from wanderbus.evaluation.grid import Cell, Experiment, Outage
from wanderbus.evaluation.handover.experiment import HandoverJob, Movement, Routing
from wanderbus.evaluation.merging import measuring
from wanderbus.evaluation.merging.mixes import MIXES
from wanderbus.evaluation.points import KINDS, differing_figures, run_point
from wanderbus.evaluation.remedies import REMEDIES
from wanderbus.pipeline.grids import run_points

pytestmark = pytest.mark.spark
EVENTS = 200


def some_work() -> Callable[[str], list[str]]:
    """Return a function that the workers need not import."""

    def work(point: str) -> list[str]:
        if point.startswith("bad"):
            raise ValueError(f"{point} is\nbad")
        return [point, point.upper()]

    return work


def mobility_jobs() -> list[simulated.Job]:
    remedies = [
        (one.cell, replace(one.experiment(4.0), events=EVENTS), seed) for one in REMEDIES[:3] for seed in (1, 2)
    ]
    return [*remedies, *((Cell(100, 20), Experiment(each, events=EVENTS), 1) for each in Outage)]


def merging_jobs() -> list[measuring.Job]:
    return [measuring.Job(mix, 2, 7, (10, 30), 0.9, events=100) for mix in MIXES[:3]]


def handover_jobs() -> list[HandoverJob]:
    return [HandoverJob(each, Movement.WAYPOINT, 4, 50, 50, 3, users=2, moves=3, group_moves=1) for each in Routing]


def federation_jobs() -> list[FederationJob]:
    return [FederationJob(each, Topology.RANDOM, 3, 2, moves=2, cut_moves=2) for each in Way]


JOBS: dict[str, Callable[[], Sequence[Any]]] = {
    "mobility": mobility_jobs,
    "merging": merging_jobs,
    "handover": handover_jobs,
    "federation": federation_jobs,
}


def test_the_outcomes_come_in_the_order_of_the_points(spark: SparkSession) -> None:
    points = [f"p{n}" for n in range(7)]
    waves = list(run_points(spark, some_work(), points, points_a_core=2))
    assert [len(wave) for wave in waves] == [4, 3], "two cores"
    assert [(each.point, each.parts, each.error) for wave in waves for each in wave] == [
        (each, [each, each.upper()], None) for each in points
    ]


def test_a_point_that_fails_is_named_and_ends_no_other(spark: SparkSession) -> None:
    [wave] = run_points(spark, some_work(), ["a", "bad", "c"])
    assert [(each.point, each.parts, each.error) for each in wave] == [
        ("a", ["a", "A"], None),
        ("bad", [], "ValueError: bad is bad"),
        ("c", ["c", "C"], None),
    ]
    assert all(each.taken_s >= 0 for each in wave)


def test_no_points_are_no_job(spark: SparkSession) -> None:
    assert list(run_points(spark, some_work(), [])) == []


@pytest.mark.parametrize("name", KINDS)
def test_t09_every_point_equals_a_direct_run(spark: SparkSession, name: str) -> None:
    kind = KINDS[name]
    points = [kind.encode(job) for job in JOBS[name]()]
    [wave] = run_points(spark, partial(run_point, name), points)
    assert [each.error for each in wave] == [None] * len(points)
    assert [differing_figures(kind, each.parts, run_point(name, each.point)) for each in wave] == [0] * len(points)
    assert len({tuple(each.parts) for each in wave}) == len(points), "the points differ from one another"
