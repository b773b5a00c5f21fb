"""``wanderbus eval``: the paper's measurements repeated and compared with its results (SPEC section R, S-08)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from wanderbus.cli.eval.federation import federation
from wanderbus.cli.eval.grid import GridPlace, PointFailure, exit_with, grid_place, run_grid
from wanderbus.cli.eval.handover import handover
from wanderbus.cli.eval.merging import merging
from wanderbus.cli.eval.options import Cores, Json, OnSpark, Out, Seed, Strict
from wanderbus.cli.eval.overhead import overhead
from wanderbus.cli.eval.plot_files import write_plots
from wanderbus.cli.eval.remedies import remedies
from wanderbus.cli.output import check_writable, machine, print_line, run_async, write_json
from wanderbus.cli.pipeline.spark_options import Environment, Master
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.grid import APART, EVENTS, GRID, OUTAGE_S, RATE_PER_S, SOURCE, Cell, Experiment, Outage
from wanderbus.evaluation.hosts import LoopbackHosts, NamespaceHosts
from wanderbus.evaluation.outcome import CellSummary, Outcome, Times, goals, summarize
from wanderbus.evaluation.plots import loss_plot
from wanderbus.evaluation.points import MOBILITY
from wanderbus.evaluation.real import RealRun, run_side_by_side

RUNS: Final = 30
"""Runs of each cell in virtual time."""

app = typer.Typer(help="Repeat the paper's measurements and compare the results.", no_args_is_help=True)


app.command()(handover)
app.command()(federation)
app.command()(merging)
app.command()(overhead)
app.command()(remedies)


def mobility_table(form: str, experiment: Experiment, summaries: Sequence[CellSummary]) -> Table:
    """Return the cells of one experiment, each with the published loss and the loss of the model."""
    away = {
        Outage.IMPOSED: f"away for {experiment.outage_s:g} s at each change",
        Outage.OURS: "new address usable at once",
        Outage.RANDOM: f"away for {0.2 * experiment.outage_s:.2g} to {1.8 * experiment.outage_s:.3g} s at each change",
    }[experiment.outage]
    compared = any(each.published_percent is not None for each in summaries)
    runs = max((each.runs for each in summaries), default=0)
    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        title=f"Loss in %, {form}, {away}\n"
        f"{experiment.rate_per_s:g} events/s, {experiment.events} a sample, runs: {runs}",
        caption="cell: events kept/seconds between changes; outage, healing: p50/max"
        + (f"\npublished: {SOURCE}\n* does not fit its neighbours, no goal" if compared else ""),
    )
    for heading in ("cell", "publ.", "model", "mean±sd", "least-most", "diff.", "outage s", "heal ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in summaries:
        table.add_row(
            f"{each.cell}{'*' if compared and each.cell == APART else ''}",
            _percent(each.published_percent),
            _percent(each.model_percent),
            f"{each.mean_percent:.2f}±{each.deviation_percent:.2f}",
            f"{each.least_percent:.2f}-{each.most_percent:.2f}",
            "" if each.difference_points is None else f"{each.difference_points:+.2f}",
            _times(each.outages, "{:.2f}/{:.2f}", 1),
            _times(each.healings, "{:.0f}/{:.0f}", 1_000),
        )
    return table


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _times(times: Times | None, form: str, scale: float) -> str:
    return "" if times is None else form.format(times.p50_s * scale, times.max_s * scale)


@app.command()
def mobility(
    real: Annotated[
        bool, typer.Option("--real", help="In real time, all cells in parallel: about two minutes for each run.")
    ] = False,
    simulated: Annotated[bool, typer.Option("--simulated", help="In virtual time, many runs of each cell.")] = False,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs", "--seeds", min=1, help=f"Runs of each cell; {RUNS} in virtual time, 1 in real time unless given."
        ),
    ] = None,
    seed: Seed = 1,
    outage: Annotated[
        list[Outage] | None,
        typer.Option(help="Kind of outage at a change of address; repeatable. imposed and ours unless given."),
    ] = None,
    outage_s: Annotated[
        float, typer.Option(min=0.2, help="Seconds of an imposed outage; mean of a random one.")
    ] = OUTAGE_S,
    rate: Annotated[float, typer.Option(min=0.1, max=1_000, help="Events published per second.")] = RATE_PER_S,
    events: Annotated[int, typer.Option(min=1, help="Events per sample.")] = EVENTS,
    cell: Annotated[
        list[str] | None,
        typer.Option(help="Only this cell: BUFFER/PERIOD as in 150/20; repeatable.", show_default=False),
    ] = None,
    on_spark: OnSpark = False,
    cores: Cores = None,
    master: Master = None,
    environment: Environment = None,
    out: Out = None,
    json: Json = None,
    plots: Annotated[Path | None, typer.Option(help="Draw the tables as SVG files in this directory.")] = None,
    strict: Strict = False,
) -> None:
    """Measure the events that a consumer with a changing address loses: Table 2 of the paper.

    A publisher on the fixed network publishes 20 events per second; a sample is 2,000 events. The consumer changes its
    address every 60, 30 or 20 seconds and is offline for some time. Meanwhile the broker queues at most 100, 150 or
    200 events for it and discards the oldest. The loss is the number of published minus received events.

    In real time, servers and agents run in temporary network namespaces, which requires root; without root, they use
    addresses of the loopback interface, and outages cannot be imposed. In virtual time the same state machines run in
    a simulator. Without --real and --simulated, root measures in real time and other users in virtual time.

    Example: wanderbus eval mobility --simulated --cell 150/20 --runs 1 --seed 17
    """
    place = grid_place(on_spark, cores, master, environment, out)
    if real and on_spark:
        raise ConfigurationError("--on-spark runs in virtual time; leave --real out")
    if json is not None:
        check_writable(json)
    started = time.monotonic()
    real = real or not (simulated or on_spark or NamespaceHosts.missing())
    cells = list(dict.fromkeys(map(Cell.parse, cell))) if cell else list(GRID)
    outages = dict.fromkeys(outage or (Outage.IMPOSED, Outage.OURS))
    wanted = [Experiment(each, outage_s, rate, events) for each in outages]
    forms = {"real": _in_real_time(cells, wanted, runs or 1)} if real else {}
    failures: list[PointFailure] = []
    if simulated or not real:
        seeds = range(seed, seed + (runs or RUNS))
        forms["simulated"], failures = _in_virtual_time(cells, wanted, seeds, place)
    summaries = {form: _summarize(wanted, outcomes) for form, outcomes in forms.items()}
    met = _report(wanted, summaries)
    write_plots(plots, _plots(summaries))
    if json is not None:
        results = {form: {"cells": summaries[form], "runs": outcomes} for form, outcomes in forms.items()}
        facts = {"first_seed": seed, "wall_s": round(time.monotonic() - started, 1), "failures": failures}
        write_json(json, {**_head(wanted), **facts, "results": results, "goals": met})
    exit_with(failures, met, strict=strict)


def _head(experiments: Sequence[Experiment]) -> dict[str, object]:
    return {"command": "eval mobility", "machine": machine(), "source": SOURCE, "experiments": experiments}


def _in_real_time(cells: Sequence[Cell], experiments: Sequence[Experiment], runs: int) -> list[Outcome]:
    """Run the cells of all experiments in parallel, ``runs`` times; the runs' samples begin at evenly spread times."""
    if (reason := NamespaceHosts.missing()) is not None:
        if any(each.outage is not Outage.OURS for each in experiments):
            raise ConfigurationError(f"cannot impose an outage: {reason}; give --outage ours, or --simulated")
        print_line(f"addresses change on the loopback interface ({reason})")
    outcomes: list[Outcome] = []
    console = Console(stderr=True)
    for run in range(runs):
        jobs = [
            RealRun(number, cell, experiment, (run + 0.5) / runs, run)
            for number, (experiment, cell) in enumerate((e, c) for e in experiments for c in cells)
        ]
        hosts = LoopbackHosts(len(jobs)) if reason else NamespaceHosts(len(jobs))
        with console.status(f"run {run + 1} of {runs}") as status:
            outcomes += run_async(run_side_by_side(jobs, hosts, status.update))
    return outcomes


def _in_virtual_time(
    cells: Sequence[Cell], experiments: Sequence[Experiment], seeds: range, place: GridPlace
) -> tuple[list[Outcome], list[PointFailure]]:
    print_line(
        f"seeds {seeds.start} to {seeds.stop - 1} of each cell; to repeat one: --simulated --cell B/P --runs 1 --seed N"
    )
    jobs = [(cell, experiment, seed) for experiment in experiments for cell in cells for seed in seeds]
    grid = run_grid(MOBILITY, jobs, place, "simulating")
    return [outcome for _, outcome in grid.outcomes], grid.failures


def _summarize(experiments: Sequence[Experiment], outcomes: Sequence[Outcome]) -> list[CellSummary]:
    return [
        summary
        for experiment in experiments
        for summary in summarize(experiment, (each for each in outcomes if each.outage is experiment.outage))
    ]


def _report(experiments: Sequence[Experiment], summaries: dict[str, list[CellSummary]]) -> list[Goal]:
    """Print a table for each form and experiment, and the goals; return the goals, the worse of both forms."""
    console = Console()
    for form, cells in summaries.items():
        for experiment in experiments:
            own = [each for each in cells if each.outage is experiment.outage]
            console.print(mobility_table(form, experiment, own))
    met: dict[str, Goal] = {}
    for cells in summaries.values():
        for goal in goals(cells):
            if goal.name not in met or not goal.met:
                met[goal.name] = goal
    for goal in met.values():
        print_line(str(goal))
    return list(met.values())


def _plots(summaries: dict[str, list[CellSummary]]) -> Iterator[tuple[str, str]]:
    for form, cells in summaries.items():
        for outage in dict.fromkeys(each.outage for each in cells):
            own = [each for each in cells if each.outage is outage]
            yield f"mobility-{form}-{outage}", loss_plot(f"Loss under mobility, {form}, outage: {outage}", own)
