"""Points of an evaluation, run by processes of this machine or by Spark (SPEC T-09)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

from wanderbus.cli.output import print_error, print_progress
from wanderbus.cli.pipeline.spark_options import SparkPlace, needing_packages, session
from wanderbus.cli.pipeline.task_progress import task_progress
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.points import PointKind, run_all, run_point


class GridPlace(NamedTuple):
    """Place where the points of a grid run, and the directory of their results."""

    on_spark: bool = False
    cores: int | None = None
    master: str | None = None
    environment: str | None = None
    out: Path | None = None


def grid_place(
    on_spark: bool, cores: int | None, master: str | None, environment: str | None, out: Path | None
) -> GridPlace:
    """Return the place of these options; ``ConfigurationError`` for one that needs ``--on-spark`` without it."""
    given = {"--cores": cores, "--master": master, "--environment": environment, "--out": out}
    names = [name for name, value in given.items() if value is not None]
    if names and not on_spark:
        raise ConfigurationError(f"{names[0]} is for Spark; give --on-spark too")
    return GridPlace(on_spark, cores, master, environment, out)


class PointFailure(NamedTuple):
    """A point that failed: its parameters and its seed, and the error."""

    point: str
    error: str


class Grid(NamedTuple):
    """Outcomes of the points that have run, in the order of their jobs, and the failures of the others."""

    outcomes: list[tuple[Any, Any]]
    """Pairs of a job and a part of its outcome."""
    failures: list[PointFailure]


def exit_with(failures: Sequence[PointFailure], goals: Iterable[Goal], *, strict: bool) -> None:
    """Exit with status 1 if a point failed, or, if ``strict``, a goal is not met."""
    if failures or (strict and not all(each.met for each in goals)):
        raise typer.Exit(1)


def run_grid(kind: PointKind, jobs: Sequence[Any], place: GridPlace, verb: str) -> Grid:
    """Run the jobs and show progress; without Spark, the first error of a job ends it."""
    if place.on_spark:
        return _on_spark(kind, jobs, place)
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    done = track(run_all(kind, jobs), verb, len(jobs), console=console, transient=True, disable=quiet)
    return Grid([(job, part) for job, parts in zip(jobs, done, strict=True) for part in parts], [])


def _on_spark(kind: PointKind, jobs: Sequence[Any], place: GridPlace) -> Grid:
    """Run the points that the directory of results does not have yet, and store each wave; exit if all failed."""
    with needing_packages("--on-spark"):
        from wanderbus.pipeline.grids import GridResults, run_points
    results = None if place.out is None else GridResults(place.out / kind.name, kind.rows)
    points = [kind.encode(job) for job in jobs]
    wanted = set(points)
    found = {} if results is None else {point: parts for point, parts in results.read().items() if point in wanted}
    missing = [point for point in dict.fromkeys(points) if point not in found]
    print_progress(f"{len(missing)} points to run, {len(wanted) - len(missing)} already there")
    failures: list[PointFailure] = []
    if missing:
        spark_place = SparkPlace(place.cores or os.cpu_count() or 1, place.master, place.environment)
        with session("wanderbus-grid", "--on-spark", spark_place) as spark, task_progress(spark):
            for wave in run_points(spark, partial(run_point, kind.name), missing):
                if results is not None:
                    results.append(wave)
                found |= {each.point: each.parts for each in wave if each.error is None}
                failures += [
                    PointFailure(kind.shown(each.point), each.error) for each in wave if each.error is not None
                ]
                print_progress(f"{len(found) + len(failures)} of {len(wanted)} points done, {len(failures)} failed")
    for each in failures:
        print_error(f"the point {each.point} failed: {each.error}")
    if not found:
        raise typer.Exit(1)
    pairs = zip(jobs, points, strict=True)
    done = [(job, part) for job, point in pairs if point in found for part in kind.parts_of(found[point])]
    return Grid(done, failures)
