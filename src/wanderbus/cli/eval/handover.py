"""``wanderbus eval handover``: handover by rendezvous, along a tree, and with flooding (SPEC R-07, S-07, T-09)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from wanderbus.cli.eval.grid import exit_with, grid_place, run_grid
from wanderbus.cli.eval.handover_tables import cases_table, costs_table, groups_table, saturation_table
from wanderbus.cli.eval.options import Cores, Json, OnSpark, Out, Seed, Strict
from wanderbus.cli.eval.plot_files import write_plots
from wanderbus.cli.eval.trace_file import read_trace
from wanderbus.cli.output import check_writable, machine, print_line, write_json
from wanderbus.cli.pipeline.spark_options import Environment, Master
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.handover.counted_cases import CountedCase, counted_cases
from wanderbus.evaluation.handover.experiment import (
    MOVES_MAX,
    PLANE_M,
    SATURATIONS,
    SERVERS,
    SERVERS_MAX,
    SOURCE,
    SWEEP_SERVERS,
    HandoverJob,
    Movement,
    Routing,
    TracePoint,
)
from wanderbus.evaluation.handover.plots import saturation_plot, servers_plot
from wanderbus.evaluation.handover.summary import HandoverSummary, goals, summarize
from wanderbus.evaluation.points import HANDOVER

RUNS: Final = 5
GROUP_MOVES: Final = 4
"""Channel groups that move in each run, except with the movement ``once``."""

WALKED_PERCENT: Final = 50
"""Saturation of all servers while users walk, unless given."""

QUICK_SATURATIONS: Final = (0, 50, 100)
QUICK_SERVERS: Final = (2, 10)


_Routing = Annotated[
    list[Routing] | None, typer.Option(help="Only this routing; repeatable. All unless given.", show_default=False)
]
_Movement = Annotated[
    list[Movement] | None,
    typer.Option(help="Only this movement; repeatable. All but trace unless given.", show_default=False),
]
_Trace = Annotated[
    Path | None,
    typer.Option(
        help=f"Movement by this CSV file: a line SECOND,USER,X,Y for each place, X and Y from 0 to {PLANE_M:g} m.",
        show_default=False,
    ),
]
_Servers = Annotated[
    list[int] | None,
    typer.Option(
        min=1,
        max=SERVERS_MAX,
        help=f"Number of servers; repeatable. {SWEEP_SERVERS} for once, {', '.join(map(str, SERVERS))} otherwise, "
        "unless given.",
        show_default=False,
    ),
]
_Saturation = Annotated[
    list[int] | None,
    typer.Option(
        min=0,
        max=100,
        help=f"Saturation in percent; repeatable. {', '.join(map(str, SATURATIONS))} for once, {WALKED_PERCENT} "
        "otherwise, unless given.",
        show_default=False,
    ),
]
_Moves = Annotated[int, typer.Option(min=1, max=MOVES_MAX, help="Moves of all users together in a run.")]
_Quick = Annotated[bool, typer.Option("--quick", help="One run, few servers and saturations, unless given.")]
_Plots = Annotated[Path | None, typer.Option(help="Draw the results as SVG files in this directory.")]


def handover(
    routing: _Routing = None,
    movement: _Movement = None,
    trace: _Trace = None,
    servers: _Servers = None,
    saturation: _Saturation = None,
    moves: _Moves = 16,
    runs: Annotated[int, typer.Option("--runs", "--seeds", min=1, help="Runs of each combination.")] = RUNS,
    seed: Seed = 1,
    quick: _Quick = False,
    on_spark: OnSpark = False,
    cores: Cores = None,
    master: Master = None,
    environment: Environment = None,
    out: Out = None,
    json: Json = None,
    plots: _Plots = None,
    strict: Strict = False,
) -> None:
    """Compare handover by rendezvous, along a tree of brokers, and with flooding, in virtual time.

    Eight users with four subscriptions each move between servers while events are published. Routings: rendezvous
    (leaders of channels by hash, with covering), uncovered (the same without covering), tree (interest hop by hop, as
    in Siena and REBECA) and flooding. Saturation is the share of a user's subscriptions that residents cover.

    Movements: once (from a server with one saturation to one with another, for all pairs), waypoint, gauss-markov, and
    a given trace; users of these are served by the nearest server, and channel groups move meanwhile. The command
    counts messages, bytes, pauses, and lost, repeated and reordered events, and compares the model with real servers.

    Example: wanderbus eval handover --movement waypoint --servers 50 --saturation 0 --saturation 100

    Example: wanderbus eval handover --trace walks.csv --servers 20
    """
    place = grid_place(on_spark, cores, master, environment, out)
    if json is not None:
        check_writable(json)
    started = time.monotonic()
    points = () if trace is None else read_trace(trace)
    movements = _movements(movement, has_trace=trace is not None)
    routings, seeds = list(dict.fromkeys(routing or Routing)), range(seed, seed + (1 if quick else runs))
    jobs = [
        job
        for each in movements
        for job in _jobs(each, _sizes(each, servers, saturation, quick=quick), routings, seeds, moves, points)
    ]
    print_line(f"seeds {seed} to {seeds[-1]} of each combination")
    grid = run_grid(HANDOVER, jobs, place, "simulating")
    outcomes = [outcome for _, outcome in grid.outcomes]
    summaries, cases = summarize(outcomes), list(counted_cases())
    _report(movements, summaries, cases)
    met = goals(summaries, cases)
    for goal in met:
        print_line(str(goal))
    write_plots(plots, _plots(movements, summaries))
    if json is not None:
        head = {"command": "eval handover", "machine": machine(), "source": SOURCE, "first_seed": seed}
        wall = {"wall_s": round(time.monotonic() - started, 1), "failures": grid.failures}
        in_cases = {"channel_updates_2x2": [each.servers.updates for each in cases], "cases": cases}
        write_json(json, {**head, **wall, "results": {**in_cases, "cells": summaries, "runs": outcomes}, "goals": met})
    exit_with(grid.failures, met, strict=strict)


def _movements(given: Sequence[Movement] | None, *, has_trace: bool) -> list[Movement]:
    """Return the movements of a run; ``ConfigurationError`` for a trace without a file, or the reverse."""
    default = [Movement.TRACE] if has_trace else [each for each in Movement if each is not Movement.TRACE]
    movements = list(dict.fromkeys(given or default))
    if (Movement.TRACE in movements) != has_trace:
        raise ConfigurationError("--movement trace and --trace FILE belong together; give both or neither")
    return movements


def _sizes(
    movement: Movement, servers: Sequence[int] | None, saturation: Sequence[int] | None, *, quick: bool
) -> list[tuple[int, int, int]]:
    """Return numbers of servers, each with a saturation of the source and one of the target."""
    if movement is Movement.ONCE:
        percents = sorted(set(saturation or (QUICK_SATURATIONS if quick else SATURATIONS)))
        return [
            each for count in sorted(set(servers or (SWEEP_SERVERS,))) for each in product([count], percents, percents)
        ]
    counts = sorted(set(servers or (QUICK_SERVERS if quick else SERVERS)))
    return [(count, percent, percent) for count in counts for percent in sorted(set(saturation or (WALKED_PERCENT,)))]


def _jobs(
    movement: Movement,
    sizes: Sequence[tuple[int, int, int]],
    routings: Sequence[Routing],
    seeds: range,
    moves: int,
    points: tuple[TracePoint, ...],
) -> Iterator[HandoverJob]:
    group_moves = 0 if movement is Movement.ONCE else GROUP_MOVES
    for size, routing, seed in product(sizes, routings, seeds):
        job = HandoverJob(routing, movement, *size, seed, moves=moves, group_moves=group_moves)
        if points:
            job = msgspec.structs.replace(job, users=1 + max(each.user for each in points), trace=points)
        yield job


def _report(movements: Sequence[Movement], summaries: Sequence[HandoverSummary], cases: Sequence[CountedCase]) -> None:
    console = Console()
    console.print(cases_table(cases))
    for each in movements:
        if each is Movement.ONCE:
            for servers in sorted({one.cell.servers for one in summaries if one.cell.movement is each}):
                console.print(saturation_table(servers, summaries))
        console.print(costs_table(each, summaries))
    if any(each.group_moves for each in summaries):
        console.print(groups_table(summaries))


def _plots(movements: Sequence[Movement], summaries: Sequence[HandoverSummary]) -> Iterator[tuple[str, str]]:
    for each in movements:
        plot = saturation_plot(summaries) if each is Movement.ONCE else servers_plot(each, summaries)
        yield f"handover-{each}", plot
