"""``wanderbus eval remedies``: remedies for outages of unknown length at a change of address (SPEC S-08)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from wanderbus.cli.eval.grid import Grid, PointFailure, exit_with, grid_place, run_grid
from wanderbus.cli.eval.options import Cores, Json, OnSpark, Out, Seed, Strict
from wanderbus.cli.output import check_writable, machine, print_line, write_json
from wanderbus.cli.pipeline.spark_options import Environment, Master
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.grid import OUTAGE_S
from wanderbus.evaluation.outcome import Outcome
from wanderbus.evaluation.plots import remedies_plot
from wanderbus.evaluation.points import MOBILITY
from wanderbus.evaluation.remedies import REMEDIES, Remedied, Remedy, goals, summarize

RUNS: Final = 30


def remedies(
    runs: Annotated[int, typer.Option("--runs", "--seeds", min=1, help="Runs with each remedy.")] = RUNS,
    seed: Seed = 1,
    outage_s: Annotated[
        float, typer.Option(min=0.2, max=16.0, help="Mean length of the outages in seconds.")
    ] = OUTAGE_S,
    on_spark: OnSpark = False,
    cores: Cores = None,
    master: Master = None,
    environment: Environment = None,
    out: Out = None,
    json: Json = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the losses as this SVG file.")] = None,
    strict: Strict = False,
) -> None:
    """Measure remedies for outages of unknown length at a change of address: a larger buffer, or a limited rate.

    A consumer changes its address every 30 s and is offline for a random time, uniform from 0.2 to 1.8 times the
    mean. The broker queues at most 100 to 400 events for it; the publisher sends 20 events per second, or fewer. Runs
    in virtual time.

    Example: wanderbus eval remedies --runs 10
    """
    place = grid_place(on_spark, cores, master, environment, out)
    for path in (json, plot):
        if path is not None:
            check_writable(path)
    started = time.monotonic()
    print_line(f"seeds {seed} to {seed + runs - 1} with each remedy")
    jobs = [(one.cell, one.experiment(outage_s), each) for each in range(seed, seed + runs) for one in REMEDIES]
    grid = run_grid(MOBILITY, jobs, place, "simulating")
    found = _summaries(grid, outage_s)
    Console().print(_table(found, outage_s))
    met = goals(found)
    for goal in met:
        print_line(str(goal))
    if plot is not None:
        _draw(plot, found)
    if json is not None:
        head = _head(seed, outage_s, started, grid.failures)
        write_json(json, {**head, "results": _results(found, grid), "goals": met})
    exit_with(grid.failures, met, strict=strict)


def _summaries(grid: Grid, outage_s: float) -> list[Remedied]:
    """Return the summary of each remedy with which a run has ended."""
    by_remedy: dict[Remedy, list[Outcome]] = {}
    for (cell, experiment, _), outcome in grid.outcomes:
        by_remedy.setdefault(Remedy(cell.buffer, experiment.rate_per_s), []).append(outcome)
    return [summarize(remedy, outage_s, own) for remedy, own in by_remedy.items()]


def _head(seed: int, outage_s: float, started: float, failures: Sequence[PointFailure]) -> dict[str, object]:
    facts = {"first_seed": seed, "outage_s": outage_s, "wall_s": round(time.monotonic() - started, 1)}
    return {"command": "eval remedies", "machine": machine(), **facts, "failures": failures}


def _results(found: Sequence[Remedied], grid: Grid) -> dict[str, object]:
    return {"remedies": found, "runs": [outcome for _, outcome in grid.outcomes]}


def _draw(path: Path, found: Sequence[Remedied]) -> None:
    try:
        path.write_text(remedies_plot(found), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _table(found: Sequence[Remedied], outage_s: float) -> Table:
    away = f"away for {0.2 * outage_s:.2g} to {1.8 * outage_s:.3g} s every 30 s"
    table = Table(box=SIMPLE_HEAD, title=f"Loss in %, {away}, runs: {max(each.runs for each in found)}")
    for heading in ("buffer", "events/s", "model", "mean", "least-most", "lossless", "longest s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        table.add_row(
            str(each.remedy.buffer),
            f"{each.remedy.rate_per_s:g}",
            f"{each.model_percent:.2f}",
            f"{each.mean_percent:.2f}",
            f"{each.least_percent:.2f}-{each.most_percent:.2f}",
            f"{each.runs_without_loss} of {each.runs}",
            f"{each.longest_outage_s:.2f}",
        )
    return table
