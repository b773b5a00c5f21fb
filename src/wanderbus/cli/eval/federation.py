"""``wanderbus eval federation``: multicast, rendezvous and trees between domains, and flooding (SPEC M-04, S-03)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from wanderbus.cli.eval.distance_files import read_places, read_regions, read_round_trips
from wanderbus.cli.eval.grid import exit_with, grid_place, run_grid
from wanderbus.cli.eval.options import Cores, Json, OnSpark, Out, Seed, Strict
from wanderbus.cli.eval.plot_files import write_plots
from wanderbus.cli.output import check_writable, machine, print_line, write_json
from wanderbus.cli.pipeline.spark_options import Environment, Master
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.federation.experiment import (
    DOMAINS,
    DOMAINS_MAX,
    SOURCE,
    USERS,
    USERS_MAX,
    FederationJob,
    Topology,
    Way,
)
from wanderbus.evaluation.federation.plots import federation_plot
from wanderbus.evaluation.federation.summary import FederationSummary, goals, summarize
from wanderbus.evaluation.handover.experiment import PLANE_M
from wanderbus.evaluation.handover.movement import Place
from wanderbus.evaluation.points import FEDERATION

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
_RoundTrips = Annotated[
    Path | None,
    typer.Option(
        help="Round-trip times between the domains in this CSV file: a line REGION,A,B,... and then, for each of them, "
        "its name and the milliseconds to each.",
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
    round_trips: _RoundTrips = None,
    domains: _Domains = None,
    runs: Annotated[int, typer.Option("--runs", "--seeds", min=1, help="Runs of each combination.")] = RUNS,
    seed: Seed = 1,
    users: Annotated[int, typer.Option(min=1, max=USERS_MAX, help="Users of each domain.")] = USERS,
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
    """Compare the ways of filters between domains: multicast, rendezvous, tree; and flooding, in virtual time.

    Each domain has four users with three filters each; every tenth domain sends each of four types. Users move to other
    domains, the links between the halves of the domains are cut and come back, and events are published. The command
    counts messages and bytes of the start, of a move, after the cut and of an event, the filters of others at each
    domain, and lost, repeated and useless events, and says how long events take.

    Topologies: random, clusters, ring and line are places in a square; regions are those of a public cloud, with the
    round-trip times that were measured between them; given are those of --places or --round-trips.

    Example: wanderbus eval federation --domains 20 --topology ring --topology regions

    Example: wanderbus eval federation --places cities.csv --plots plots
    """
    place = grid_place(on_spark, cores, master, environment, out)
    if json is not None:
        check_writable(json)
    started = time.monotonic()
    given = _given(places, round_trips)
    topologies = list(dict.fromkeys(topology or ([Topology.GIVEN] if given else [Topology.RANDOM])))
    if (Topology.GIVEN in topologies) != (given is not None):
        raise ConfigurationError(
            "--topology given belongs together with --places FILE or --round-trips FILE; give both or neither"
        )
    seeds = range(seed, seed + (1 if quick else runs))
    counts = sorted(set(domains or (QUICK_DOMAINS if quick else DEFAULT_DOMAINS)))
    ways = list(dict.fromkeys(method or Way))
    jobs = [job for each in topologies for job in _jobs(ways, each, counts, given, seeds, users)]
    print_line(f"seeds {seed} to {seeds[-1]} of each combination")
    grid = run_grid(FEDERATION, jobs, place, "simulating")
    outcomes = [outcome for _, outcome in grid.outcomes]
    summaries = summarize(outcomes)
    for each in topologies:
        Console().print(_table(each, summaries))
    met = goals(summaries)
    for goal in met:
        print_line(str(goal))
    write_plots(plots, ((f"federation-{each}", federation_plot(each, summaries)) for each in topologies))
    if json is not None:
        head = {"command": "eval federation", "machine": machine(), "source": SOURCE, "first_seed": seed}
        end = {"wall_s": round(time.monotonic() - started, 1), "failures": grid.failures}
        write_json(json, {**head, **end, "results": {"cells": summaries, "runs": outcomes}, "goals": met})
    exit_with(grid.failures, met, strict=strict)


class _Given(NamedTuple):
    """Places of the domains, or the round-trip times between them."""

    places: tuple[Place, ...] = ()
    round_trips_ms: tuple[tuple[float, ...], ...] = ()


def _given(places: Path | None, round_trips: Path | None) -> _Given | None:
    if places is not None and round_trips is not None:
        raise ConfigurationError("--places and --round-trips exclude each other; give one of them")
    if places is not None:
        return _Given(places=read_places(places))
    return None if round_trips is None else _Given(round_trips_ms=read_round_trips(round_trips))


def _jobs(
    ways: Sequence[Way], topology: Topology, counts: Sequence[int], given: _Given | None, seeds: range, users: int
) -> Iterator[FederationJob]:
    """Yield the runs with one topology; of given domains, with all of them, and of regions, with at most all."""
    measured = _Given()
    if topology is Topology.GIVEN and given is not None:
        measured, counts = given, [len(given.places) or len(given.round_trips_ms)]
    elif topology is Topology.REGIONS:
        measured = _Given(round_trips_ms=read_regions())
        counts = sorted({min(each, len(measured.round_trips_ms)) for each in counts})
    for way, count, seed in product(ways, counts, seeds):
        yield FederationJob(way, topology, count, seed, users=users, **measured._asdict())


def _table(topology: Topology, summaries: Sequence[FederationSummary]) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        title=f"Federation, topology: {topology}",
        caption="start, healed: kB of the start and after a cut; move: messages that tell what is wanted, and kB\n"
        "table: mean filters of others at a domain; event: messages, and extra ones that nobody wants\n"
        "ms: mean time to a domain that wants an event; bad: events lost or repeated",
    )
    for heading in ("domains", "way", "start", "move", "kB", "healed", "table", "event", "extra", "ms", "bad"):
        table.add_column(heading, justify="left" if heading == "way" else "right", no_wrap=True)
    for each in summaries:
        if each.cell.topology is topology:
            table.add_row(
                *(str(each.cell.domains), str(each.cell.way), f"{each.start_kilobytes:.0f}"),
                *(f"{each.updates:.1f}", f"{each.kilobytes:.1f}", f"{each.heal_kilobytes:.0f}"),
                *(f"{each.table_mean:.0f}", f"{each.event_messages:.2f}", f"{each.useless:.2f}"),
                *(f"{each.delivery_ms:.1f}", str(each.lost + each.repeated)),
            )
    return table
