"""``wanderbus eval federation``: multicast, rendezvous and trees between domains, and flooding (SPEC M-04, S-03)."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from wanderbus.cli.eval.grid import exit_with
from wanderbus.cli.eval.options import Json, Seed, Strict
from wanderbus.cli.eval.plot_files import write_plots
from wanderbus.cli.output import check_writable, machine, print_line, write_json
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.federation.experiment import (
    DOMAINS,
    DOMAINS_MAX,
    SOURCE,
    FederationJob,
    Topology,
    Way,
)
from wanderbus.evaluation.federation.plots import federation_plot
from wanderbus.evaluation.federation.running import run_job
from wanderbus.evaluation.federation.summary import FederationSummary, goals, summarize
from wanderbus.evaluation.handover.experiment import PLANE_M
from wanderbus.evaluation.handover.movement import Place

RUNS: Final = 3
QUICK_DOMAINS: Final = (2, 10)
DEFAULT_DOMAINS: Final = DOMAINS[:5]

_Method = Annotated[
    list[Way] | None, typer.Option("--method", help="Only this way; repeatable. All unless given.", show_default=False)
]
_Topology = Annotated[
    list[Topology] | None,
    typer.Option(help="Only this topology; repeatable. Random unless given.", show_default=False),
]
_Places = Annotated[
    Path | None,
    typer.Option(
        help=f"Places of the domains in this CSV file: a line X,Y for each, from 0 to {PLANE_M:g} m.",
        show_default=False,
    ),
]
_Domains = Annotated[
    list[int] | None,
    typer.Option(
        min=1,
        max=DOMAINS_MAX,
        help=f"Number of domains; repeatable. {', '.join(map(str, DEFAULT_DOMAINS))} unless given.",
        show_default=False,
    ),
]
_Quick = Annotated[bool, typer.Option("--quick", help="One run, few domains, unless given.")]
_Plots = Annotated[Path | None, typer.Option(help="Draw the results as SVG files in this directory.")]


def federation(
    method: _Method = None,
    topology: _Topology = None,
    places: _Places = None,
    domains: _Domains = None,
    runs: Annotated[int, typer.Option("--runs", "--seeds", min=1, help="Runs of each combination.")] = RUNS,
    seed: Seed = 1,
    quick: _Quick = False,
    json: Json = None,
    plots: _Plots = None,
    strict: Strict = False,
) -> None:
    """Compare the ways of filters between domains: multicast, rendezvous, tree; and flooding, in virtual time.

    Each domain has four users with three filters each; every tenth domain sends each of four types. Users move to other
    domains, and events are published. The command counts messages and bytes of the start, of a move and of an event,
    the filters of others at each domain, and lost, repeated and useless events.

    Example: wanderbus eval federation --domains 20 --topology ring --topology clusters

    Example: wanderbus eval federation --places cities.csv --plots plots
    """
    if json is not None:
        check_writable(json)
    started = time.monotonic()
    given = () if places is None else read_places(places)
    topologies = list(dict.fromkeys(topology or ([Topology.GIVEN] if given else [Topology.RANDOM])))
    if (Topology.GIVEN in topologies) != bool(given):
        raise ConfigurationError("--topology given and --places FILE belong together; give both or neither")
    seeds = range(seed, seed + (1 if quick else runs))
    jobs = list(_jobs(method or list(Way), topologies, domains or (), given, seeds, quick=quick))
    print_line(f"seeds {seed} to {seeds[-1]} of each combination")
    outcomes = [run_job(job) for job in jobs]
    summaries = summarize(outcomes)
    for each in topologies:
        Console().print(_table(each, summaries))
    met = goals(summaries)
    for goal in met:
        print_line(str(goal))
    write_plots(plots, ((f"federation-{each}", federation_plot(each, summaries)) for each in topologies))
    if json is not None:
        head = {"command": "eval federation", "machine": machine(), "source": SOURCE, "first_seed": seed}
        wall = {"wall_s": round(time.monotonic() - started, 1)}
        write_json(json, {**head, **wall, "results": {"cells": summaries, "runs": outcomes}, "goals": met})
    exit_with([], met, strict=strict)


def read_places(path: Path) -> tuple[Place, ...]:
    """Return the places in a CSV file; :class:`ConfigurationError` if a line is wrong."""
    found: list[Place] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                found.append(_place(row, f"{path}:{number}"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    if not 1 <= len(found) <= DOMAINS_MAX:
        raise ConfigurationError(f"{path}: {len(found)} places (expected 1 to {DOMAINS_MAX})")
    return tuple(found)


def _place(row: Sequence[str], where: str) -> Place:
    try:
        x, y = map(float, row)
    except ValueError:
        raise ConfigurationError(f"{where}: expected X,Y") from None
    if not all(math.isfinite(each) and 0 <= each <= PLANE_M for each in (x, y)):
        raise ConfigurationError(f"{where}: {x:g},{y:g} is out of range (expected 0 to {PLANE_M:g})")
    return x, y


def _jobs(
    ways: Sequence[Way],
    topologies: Sequence[Topology],
    domains: Sequence[int],
    places: tuple[Place, ...],
    seeds: range,
    *,
    quick: bool,
) -> Iterator[FederationJob]:
    counts = sorted(set(domains or (QUICK_DOMAINS if quick else DEFAULT_DOMAINS)))
    for topology, way in product(topologies, dict.fromkeys(ways)):
        own = [len(places)] if topology is Topology.GIVEN else counts
        for count, seed in product(own, seeds):
            yield FederationJob(way, topology, count, seed, places=places if topology is Topology.GIVEN else ())


def _table(topology: Topology, summaries: Sequence[FederationSummary]) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        title=f"Federation, topology: {topology}",
        caption="start: messages and kB of the start; updates, answers, kB: of a move of a user\n"
        "table: filters of others at a domain, mean/max; event: messages of an event, those that nobody wants, and km\n"
        "bad: events lost or repeated",
    )
    headings = (
        "domains",
        "way",
        "start",
        "kB",
        "updates",
        "answers",
        "kB",
        "table",
        "event",
        "useless",
        "km",
        "hops",
        "bad",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "way" else "right", no_wrap=True)
    for each in summaries:
        if each.cell.topology is topology:
            table.add_row(
                *(str(each.cell.domains), str(each.cell.way)),
                *(f"{each.start_messages:.0f}", f"{each.start_kilobytes:.0f}"),
                *(f"{each.updates:.1f}", f"{each.answers:.1f}", f"{each.kilobytes:.1f}"),
                f"{each.table_mean:.0f}/{each.table_max}",
                *(f"{each.event_messages:.2f}", f"{each.useless:.2f}", f"{each.event_km:.1f}"),
                *(str(each.hops_max), str(each.lost + each.repeated)),
            )
    return table
