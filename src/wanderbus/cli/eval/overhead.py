"""``wanderbus eval overhead``: overhead of mobility, figure 8 of the paper (SPEC R-01)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from wanderbus.cli.eval.plot_files import write_plots
from wanderbus.cli.output import check_writable, machine, print_line, run_async, write_json
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.overhead.experiment import (
    CONSUMERS,
    EVENTS,
    RATE_PER_S,
    RELAY_RTT_S,
    SOURCE,
    WIFI_RTT_S,
    Configuration,
    OverheadExperiment,
)
from wanderbus.evaluation.overhead.network import missing
from wanderbus.evaluation.overhead.plots import overhead_plot
from wanderbus.evaluation.overhead.running import run
from wanderbus.evaluation.overhead.summary import (
    OverheadSummary,
    PlaceTimes,
    Sample,
    Slowdown,
    goals,
    mobility_ms,
    ranking,
    small_increase,
    steps,
    summarize,
)

QUICK_EVENTS: Final = 100
QUICK_CONSUMERS: Final = (1, 4)


def sums_table(experiment: OverheadExperiment, summaries: Sequence[OverheadSummary]) -> Table:
    """Return the consumers' sums of latencies, by number of consumers and configuration."""
    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        title=f"{experiment.rate_per_s:g} events/s, {experiment.events} a sample, "
        f"runs: {max((each.runs for each in summaries), default=0)}",
        caption="sum and average of a consumer's latencies (arrival minus publication)",
    )
    for heading in ("consumers", "configuration", "sum s", "average ms", "p50", "p95", "max"):
        table.add_column(heading, justify="left" if heading == "configuration" else "right", no_wrap=True)
    for each in summaries:
        table.add_row(
            str(each.consumers),
            f"{each.configuration} {each.configuration.about}",
            f"{each.sum_s:.3f}",
            *(f"{ms:.2f}" for ms in (each.mean_ms, each.p50_ms, each.p95_ms, each.max_ms)),
            end_section=each.configuration == summaries[-1].configuration,
        )
    return table


def steps_table(differences: Sequence[Slowdown]) -> Table:
    """Return the extra latency of each configuration over the previous one."""
    table = Table(box=SIMPLE_HEAD, title="slower by, ms an event", caption="mean of the rounds, and its standard error")
    kinds = list(dict.fromkeys((each.lower, each.upper) for each in differences))
    for heading in ("consumers", *(f"{lower} to {upper}" for lower, upper in kinds)):
        table.add_column(heading, justify="right", no_wrap=True)
    for consumers in dict.fromkeys(each.consumers for each in differences):
        own = {(each.lower, each.upper): each for each in differences if each.consumers == consumers}
        table.add_row(str(consumers), *(f"{own[kind].mean_ms:+.3f} ± {own[kind].error_ms:.3f}" for kind in kinds))
    return table


def overhead(
    configuration: Annotated[
        list[int] | None,
        typer.Option(min=1, max=4, help="Only this one; repeatable. All four unless given.", show_default=False),
    ] = None,
    consumers: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=64,
            help=f"Number of consumers; repeatable. {', '.join(map(str, CONSUMERS))} unless given.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[int | None, typer.Option(min=1, help="Events per sample.", show_default=str(EVENTS))] = None,
    rate: Annotated[float, typer.Option(min=0.1, max=1_000, help="Events published per second.")] = RATE_PER_S,
    wifi_rtt_ms: Annotated[
        float, typer.Option(min=0.0, max=1_000, help="Added round-trip time of the device's link; 0 adds nothing.")
    ] = WIFI_RTT_S * 1_000,
    relay_rtt_ms: Annotated[
        float, typer.Option(min=0.0, max=1_000, help="Added round-trip time to a remote relay; 0 adds nothing.")
    ] = RELAY_RTT_S * 1_000,
    encryption: Annotated[bool, typer.Option(help="Encrypt events; the original ECI never does.")] = True,
    runs: Annotated[int, typer.Option(min=1, help="Samples of each combination.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random order of the configurations.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK_EVENTS} events per sample, and 1 and 4 consumers, unless given.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write results to this file.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Draw the curves as an SVG file in this directory.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a goal is not met.")] = False,
) -> None:
    """Measure the extra latency of events with mobility, through NAT and a relay: figure 8 of the paper.

    A publisher and its consumers are on one device, the broker is on another host. The publisher sends 20 events per
    second; a sample is 2,000 events, and each consumer adds up their latencies. Configurations: 1 the original ECI,
    2 MD-ECI with SIP mobility, 3 the same behind NAT with a relay beside the broker, 4 with the relay on a third host.

    Everything runs in real time in temporary network namespaces, which requires root; a program adds the delay of the
    links. The configurations take turns of 20 events, in random order. A run of the published size takes 40 minutes.

    Example: wanderbus eval overhead --events 400 --consumers 1 --consumers 4
    """
    if json is not None:
        check_writable(json)
    started = time.monotonic()
    experiment = OverheadExperiment(
        tuple(sorted(map(Configuration, set(configuration or Configuration)))),
        tuple(sorted(set(consumers or (QUICK_CONSUMERS if quick else CONSUMERS)))),
        events or (QUICK_EVENTS if quick else EVENTS),
        rate,
        wifi_rtt_ms / 1_000,
        relay_rtt_ms / 1_000,
        encryption,
    )
    if (reason := missing(experiment)) is not None:
        raise ConfigurationError(f"cannot measure on this machine: {reason}")
    print_line(f"seeds {seed} to {seed + runs - 1} of the order of configurations")
    samples, places = _run(experiment, runs, seed)
    summaries = summarize(samples)
    met = goals(summaries, places)
    _report(experiment, summaries, steps(samples), places, met)
    write_plots(plots, _plots(experiment, summaries))
    if json is not None:
        facts = {"first_seed": seed, "wall_s": round(time.monotonic() - started, 1), "places": places}
        write_json(json, {**_head(experiment), **facts, "results": _results(summaries, samples), "goals": met})
    if strict and not all(each.met for each in met):
        raise typer.Exit(1)


def _head(experiment: OverheadExperiment) -> dict[str, object]:
    return {"command": "eval overhead", "machine": machine(), "source": SOURCE, "experiment": experiment}


def _results(summaries: Sequence[OverheadSummary], samples: Sequence[Sample]) -> dict[str, object]:
    return {
        "curves": summaries,
        "steps": steps(samples),
        "ranking": ranking(summaries),
        "small_increase": small_increase(summaries),
        "mdeci_minus_eci_p50_ms": mobility_ms(summaries),
        "samples": samples,
    }


def _run(experiment: OverheadExperiment, runs: int, seed: int) -> tuple[list[Sample], PlaceTimes]:
    with Console(stderr=True).status("") as status:
        return run_async(run(experiment, runs, seed, status.update))


def _report(
    experiment: OverheadExperiment,
    summaries: Sequence[OverheadSummary],
    differences: Sequence[Slowdown],
    places: PlaceTimes,
    met: list[Goal],
) -> None:
    console = Console()
    console.print(sums_table(experiment, summaries))
    if differences:
        console.print(steps_table(differences))
    links = ", ".join(f"{pair} {ms:.2f}" for pair, ms in places.round_trip_p50_ms.items())
    print_line(f"p50 in ms: one sync of the disk {places.sync_p50_ms:.2f}; round trips {links}")
    for goal in met:
        print_line(str(goal))


def _plots(experiment: OverheadExperiment, summaries: Sequence[OverheadSummary]) -> Iterator[tuple[str, str]]:
    title = (
        f"Overhead of mobility, {experiment.events} events; round trips: Wi-Fi {experiment.wifi_rtt_s * 1_000:g} ms, "
        f"remote relay {experiment.relay_rtt_s * 1_000:g} ms"
    )
    yield "overhead", overhead_plot(title, summaries)
