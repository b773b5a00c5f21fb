"""``wanderbus eval remedies``: remedies for outages of unknown length at a change of address (SPEC S-08)."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from wanderbus.cli.output import check_writable, machine, print_line, write_json
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.grid import OUTAGE_S
from wanderbus.evaluation.outcome import Outcome
from wanderbus.evaluation.plots import remedies_plot
from wanderbus.evaluation.remedies import REMEDIES, Remedied, goals, summarize
from wanderbus.evaluation.simulated import run_all

RUNS: Final = 30


def remedies(
    runs: Annotated[int, typer.Option(min=1, help="Runs with each remedy.")] = RUNS,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 1,
    outage_s: Annotated[
        float, typer.Option(min=0.2, max=16.0, help="Mean length of the outages in seconds.")
    ] = OUTAGE_S,
    json: Annotated[Path | None, typer.Option(help="Write results to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the losses as this SVG file.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a goal is not met.")] = False,
) -> None:
    """Measure remedies for outages of unknown length at a change of address: a larger buffer, or a limited rate.

    A consumer changes its address every 30 s and is offline for a random time, uniform from 0.2 to 1.8 times the
    mean. The broker queues at most 100 to 400 events for it; the publisher sends 20 events per second, or fewer. Runs
    in virtual time.

    Example: wanderbus eval remedies --runs 10
    """
    for path in (json, plot):
        if path is not None:
            check_writable(path)
    started = time.monotonic()
    print_line(f"seeds {seed} to {seed + runs - 1} with each remedy")
    jobs = [(one.cell, one.experiment(outage_s), each) for one in REMEDIES for each in range(seed, seed + runs)]
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    outcomes = list(track(run_all(jobs), "simulating", len(jobs), console=console, transient=True, disable=quiet))
    found = [
        summarize(one, outage_s, outcomes[number * runs : (number + 1) * runs]) for number, one in enumerate(REMEDIES)
    ]
    Console().print(_table(found, outage_s))
    met = goals(found)
    for goal in met:
        print_line(str(goal))
    if plot is not None:
        _draw(plot, found)
    if json is not None:
        write_json(json, {**_head(seed, outage_s, started), "results": _results(found, outcomes), "goals": met})
    if strict and not all(each.met for each in met):
        raise typer.Exit(1)


def _head(seed: int, outage_s: float, started: float) -> dict[str, object]:
    facts = {"first_seed": seed, "outage_s": outage_s, "wall_s": round(time.monotonic() - started, 1)}
    return {"command": "eval remedies", "machine": machine(), **facts}


def _results(found: Sequence[Remedied], outcomes: Sequence[Outcome]) -> dict[str, object]:
    return {"remedies": found, "runs": outcomes}


def _draw(path: Path, found: Sequence[Remedied]) -> None:
    try:
        path.write_text(remedies_plot(found), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _table(found: Sequence[Remedied], outage_s: float) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        title=f"Loss in %, away for {0.2 * outage_s:.2g} to {1.8 * outage_s:.3g} s every 30 s, runs: {found[0].runs}",
    )
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
