"""``wanderbus sim``: seeded histories of the very machines, checked (DESIGN rule 3)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from wanderbus.cli.output import check_writable, complain, machine, say, write_json
from wanderbus.errors import ConfigurationError
from wanderbus.simulation.scenario import Result, Scenario, run_seed


def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many histories.")] = 200,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Replay this one alone.", show_default=False)] = None,
    trace: Annotated[Path | None, typer.Option(help="With --seed: write everything that happened.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write results to this file.")] = None,
) -> None:
    """Simulate users who move, crash and lose the network, and check that nothing is lost, repeated or reordered.

    Exit status 1 if a promise was broken; each failure names the command that replays it.

    Example: wanderbus sim --seeds 50 --first-seed 1000
    """
    if trace is not None and seed is None:
        raise ConfigurationError("--trace goes with --seed")
    for path in (trace, json):
        if path is not None:
            check_writable(path)
    started = time.monotonic()
    if seed is not None:
        results = [_replay(seed, trace)]
    else:
        wanted = range(first_seed, first_seed + seeds)
        quiet = not sys.stderr.isatty()
        shown = track(
            _in_parallel(wanted), "simulating", seeds, console=Console(stderr=True), transient=True, disable=quiet
        )
        results = list(shown)
    failed = [result for result in results if result.problems]
    for result in failed:
        for problem in result.problems:
            complain(f"seed {result.seed}: {problem}")
        complain(f"replay it with: wanderbus sim --seed {result.seed} --trace FILE")
    summary = _summary(results, time.monotonic() - started)
    say(
        f"{summary['seeds']} seeds, {len(failed)} failed; {summary['events']} events, "
        f"{summary['notifications']} notifications, {summary['address_changes']} address changes, "
        f"{summary['agent_kills']} agents killed, {summary['server_crashes']} server crashes, "
        f"{summary['datagrams']} datagrams, {summary['wall_s']} s"
    )
    if json is not None:
        goals = [{"name": "failed", "value": len(failed), "unit": "seeds", "goal": 0, "met": not failed}]
        report = {"command": "sim", "machine": machine(), "summary": summary, "results": results, "goals": goals}
        write_json(json, report)
    if failed:
        raise typer.Exit(1)


def _replay(seed: int, trace: Path | None) -> Result:
    scenario = Scenario(seed, keep_trace=trace is not None)
    result = scenario.run()
    if trace is not None:
        try:
            trace.write_text("".join(f"{line}\n" for line in scenario.world.trace or ()), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{trace} cannot be written: {error.strerror}") from None
    return result


def _in_parallel(seeds: Iterable[int]) -> Iterator[Result]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(run_seed, seeds, chunksize=4)


def _summary(results: list[Result], wall_s: float) -> dict[str, float]:
    counted = ("events", "notifications", "address_changes", "agent_kills", "server_crashes", "datagrams")
    totals: dict[str, float] = {name: sum(getattr(result, name) for result in results) for name in counted}
    return {"seeds": len(results), **totals, "wall_s": round(wall_s, 1)}
