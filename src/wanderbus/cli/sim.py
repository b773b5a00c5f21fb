"""``wanderbus sim``: seeded simulations of the production state machines, with checks (DESIGN rule 3)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import track

from wanderbus.cli.output import check_writable, machine, print_error, print_line, write_json
from wanderbus.errors import ConfigurationError
from wanderbus.simulation.layers import SCENARIOS, Layer, replay_command
from wanderbus.simulation.scenario import Result, Scenario
from wanderbus.simulation.sip.scenario import HEAL_RTT_GOAL, SIPScenario
from wanderbus.simulation.system.scenario import SystemScenario

PROGRESS_EACH_S: Final = 5.0


def sim(
    layer: Annotated[
        Layer,
        typer.Option(
            help="broker: the whole system. history: the same, with subscriptions that begin in the past."
            " sip, domains: registration, calls and moves, in one domain or several."
            " rudp: reliable UDP. relay, hostile-relay: reliable UDP through a media relay, honest or malicious. nat:"
            " the whole system behind NATs, with a relay. weeks: the broker over weeks. causal: servers that"
            " send events to each other directly."
            " interest: filters between the servers of a domain. links: links between these."
            " ordered, decentralised: servers that share the channels of a domain, in either model."
            " moved: the same while the models and leaders of channels change."
            " federation: several domains that share events."
            " matrix: the cell of the mobility matrix that belongs to the seed."
        ),
    ] = Layer.BROKER,
    seeds: Annotated[int, typer.Option(min=1, help="Number of simulations.")] = 200,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Replay only this seed.", show_default=False)] = None,
    trace: Annotated[Path | None, typer.Option(help="With --seed: write a full trace to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write results to this file.")] = None,
) -> None:
    """Simulate users who move, crash and lose the network, and check the guarantees of the system.

    The broker loses, repeats and reorders nothing. With SIP, in the end every user is registered at the current
    address, every session is CONNECTED on both sides, and no other state remains. Reliable UDP delivers every message
    once and in order, retransmits on schedule, and accepts nothing forged. The relay does the same through NATs and
    sends nothing to strangers; reliable UDP survives a malicious relay too. Behind NATs, the guarantees of the broker
    hold, and data take the relay only where there is no direct path. Over weeks, lifetimes, restrictions and queue
    bounds hold while users come and go, clocks are set and the broker crashes. Between servers, no event is delivered
    before its cause, no table lacks interest that counts, and links deliver in order and to servers only. An ordered
    domain delivers each event once, in the order of its channel, to all who subscribed before. Domains that share
    events do so too, and nothing crosses that nobody wants. Exit status 1 if a guarantee was broken; each failure
    prints the command that replays it.

    Example: wanderbus sim --seeds 50 --first-seed 1000
    """
    if trace is not None and seed is None:
        raise ConfigurationError("--trace needs --seed")
    for path in (trace, json):
        if path is not None:
            check_writable(path)
    started = time.monotonic()
    scenario = SCENARIOS[layer]
    if seed is not None:
        results = [_replay(scenario, seed, trace)]
    else:
        wanted = range(first_seed, first_seed + seeds)
        results = list(_with_progress(_in_parallel(scenario, wanted), seeds))
    failed = [result for result in results if result.problems]
    _print_failures(layer, failed)
    summary = _summary(scenario, results, time.monotonic() - started)
    counts = ", ".join(f"{summary[name]} {words}" for name, words in scenario.counted.items())
    print_line(f"{summary['seeds']} seeds, {len(failed)} failed; {counts}, {summary['wall_s']} s")
    if json is not None:
        goals = _goals(scenario, results, len(failed))
        report = {"command": "sim", "layer": layer, "machine": machine(), "summary": summary}
        write_json(json, {**report, "results": [_row(result) for result in results], "goals": goals})
    if failed:
        raise typer.Exit(1)


def _print_failures(layer: Layer, failed: Sequence[Result]) -> None:
    for result in failed:
        for problem in result.problems:
            print_error(f"seed {result.seed}: {problem}")
        print_error(f"replay with: {replay_command(layer, result.seed)}")


def _replay(kind: type[Scenario], seed: int, trace: Path | None) -> Result:
    scenario = kind(seed, keep_trace=trace is not None)
    result = scenario.run()
    if trace is not None:
        try:
            trace.write_text("".join(f"{line}\n" for line in scenario.world.trace or ()), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{trace} cannot be written: {error.strerror}") from None
    return result


def _in_parallel(scenario: type[Scenario], seeds: Iterable[int]) -> Iterator[Result]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(scenario.run_seed, seeds, chunksize=4)


def _with_progress(results: Iterable[Result], seeds: int) -> Iterator[Result]:
    """Show progress: a bar on a terminal, elsewhere a line every :data:`PROGRESS_EACH_S` seconds."""
    if sys.stderr.isatty():
        yield from track(results, "simulating", seeds, console=Console(stderr=True), transient=True)
        return
    shown_at, failed = time.monotonic(), 0
    for number, result in enumerate(results, 1):
        if result.problems:
            failed += 1
            print(f"seed {result.seed}: {result.problems[0]}", file=sys.stderr, flush=True)
        if time.monotonic() - shown_at >= PROGRESS_EACH_S:
            shown_at = time.monotonic()
            print(f"{number} of {seeds} seeds, {failed} failed", file=sys.stderr, flush=True)
        yield result


def _summary(scenario: type[Scenario], results: Sequence[Result], wall_s: float) -> dict[str, float]:
    totals = {name: sum(result.counts.get(name, 0) for result in results) for name in scenario.counted}
    return {"seeds": len(results), **totals, "wall_s": round(wall_s, 1)}


def _row(result: Result) -> dict[str, object]:
    """Return a result for a file, with its counters beside the other fields."""
    fields = msgspec.structs.asdict(result)
    del fields["counts"]
    return {**fields, **result.counts}


def _goals(scenario: type[Scenario], results: Sequence[Result], failed: int) -> list[dict[str, object]]:
    """Return the goals of the run, with the values that it reached."""
    if issubclass(scenario, SystemScenario):
        goals = [_goal("failed", failed, "seeds", 0)]
    else:
        goals = [_goal("worlds_failed", failed, "seeds", 0)]
    if issubclass(scenario, SIPScenario):
        longest = max((result.counts["heal_rtt"] for result in results if result.counts["heals"]), default=None)
        goals.append(_goal("heal_rtt", longest, "round trips", HEAL_RTT_GOAL))
    return goals


def _goal(name: str, value: float | None, unit: str, most: float) -> dict[str, object]:
    """Return a goal that is met by a measured ``value`` of at most ``most``."""
    return {"name": name, "value": value, "unit": unit, "goal": most, "met": value is not None and value <= most}
