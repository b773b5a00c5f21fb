"""``wanderbus eval merging``: the paper's merging experiment, compared with its results (SPEC R-04 to R-06)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from wanderbus.cli.eval.grid import exit_with, grid_place, run_grid
from wanderbus.cli.eval.merging_tables import costs_table, growth_table, mixes_table, sizes_table
from wanderbus.cli.eval.options import Cores, Json, OnSpark, Out, Seed, Strict
from wanderbus.cli.eval.plot_files import write_plots
from wanderbus.cli.output import check_writable, machine, print_line, write_json
from wanderbus.cli.pipeline.spark_options import Environment, Master
from wanderbus.evaluation.merging.growth import Growth, growths
from wanderbus.evaluation.merging.measuring import Job
from wanderbus.evaluation.merging.mixes import MIXES, Mix
from wanderbus.evaluation.merging.plots import merging_plot
from wanderbus.evaluation.merging.summary import PUBLISHED, SOURCE, MergingSummary, goals, summarize
from wanderbus.evaluation.merging.workload import SUBSCRIPTIONS
from wanderbus.evaluation.points import MERGING
from wanderbus.filters.merging import PRECISION_MIN

RUNS: Final = 20
"""Replications, as many as the paper's."""

SIZES: Final = (25, 50, 100, 150, SUBSCRIPTIONS)
"""Sizes of the sets of subscriptions; of the paper's sizes, only the last is known."""


def merging(
    mix: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Only this mix: {', '.join(each.name for each in MIXES)}; repeatable. All unless given.",
            show_default=False,
        ),
    ] = None,
    tuples: Annotated[
        list[int] | None,
        typer.Option(min=1, max=8, help="Tuples of a filter; repeatable. 2, 3 and 4 unless given."),
    ] = None,
    subscriptions: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=10_000,
            help=f"Number of subscriptions; repeatable. {', '.join(map(str, SIZES))} unless given.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", "--seeds", min=1, help="Replications of each combination.")] = RUNS,
    seed: Seed = 1,
    precision_min: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least precision of adaptive merging.")
    ] = PRECISION_MIN,
    on_spark: OnSpark = False,
    cores: Cores = None,
    master: Master = None,
    environment: Environment = None,
    out: Out = None,
    json: Json = None,
    plots: Annotated[Path | None, typer.Option(help="Draw each mix as an SVG file in this directory.")] = None,
    strict: Strict = False,
) -> None:
    """Measure the merging of random subscriptions: figure 1 of the event service paper.

    Ten random schemas of 2, 3 or 4 tuples get 200 random subscriptions. Their filters are merged perfectly,
    imperfectly, and adaptively between the two. The command measures the number of filters that remain, the precision
    (share of the matched events that some subscription wants), the size as XML, compressed filter by filter and as a
    stream, and the time of merging and matching.

    The paper does not specify the constraints and the events. Each mix is one interpretation of it.

    Example: wanderbus eval merging --mix one-sided --runs 5
    """
    place = grid_place(on_spark, cores, master, environment, out)
    if json is not None:
        check_writable(json)
    started = time.monotonic()
    mixes = list(dict.fromkeys(map(Mix.named, mix))) if mix else list(MIXES)
    sizes = tuple(sorted(set(subscriptions or SIZES)))
    print_line(f"seeds {seed} to {seed + runs - 1} of each mix; to repeat one: --mix M --tuples K --runs 1 --seed N")
    seeds = range(seed, seed + runs)
    every = product(mixes, sorted(set(tuples or PUBLISHED)), seeds)
    jobs = [Job(each, count, number, sizes, precision_min) for each, count, number in every]
    grid = run_grid(MERGING, jobs, place, "merging")
    outcomes = [outcome for _, outcome in grid.outcomes]
    grown = list(growths(precision_min, seed))
    summaries = summarize(outcomes)
    _report(mixes, summaries, grown)
    met = goals(summaries, grown, precision_min)
    for goal in met:
        print_line(str(goal))
    write_plots(plots, _plots(mixes, summaries))
    if json is not None:
        head = {"command": "eval merging", "machine": machine(), "source": SOURCE, "mixes": mixes}
        facts = {"first_seed": seed, "precision_min": precision_min, "wall_s": round(time.monotonic() - started, 1)}
        results = {"cells": summaries, "growth": grown, "runs": outcomes}
        write_json(json, {**head, **facts, "failures": grid.failures, "results": results, "goals": met})
    exit_with(grid.failures, met, strict=strict)


def _report(mixes: Sequence[Mix], summaries: Sequence[MergingSummary], grown: Sequence[Growth]) -> None:
    console = Console()
    for mix in mixes:
        own = [each for each in summaries if each.cell.mix == mix.name]
        console.print(sizes_table(mix, own))
        console.print(costs_table(mix, own))
    console.print(mixes_table(summaries))
    console.print(growth_table(grown))


def _plots(mixes: Sequence[Mix], summaries: Sequence[MergingSummary]) -> Iterator[tuple[str, str]]:
    for mix in mixes:
        yield f"merging-{mix.name}", merging_plot(mix, [each for each in summaries if each.cell.mix == mix.name])
