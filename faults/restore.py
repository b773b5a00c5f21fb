"""Restore state from copies that were taken while programs ran, and look for events that vanish silently.

The directories of a server, an agent, an outbox, a lake and one server of a domain are copied in the middle of
traffic, as operators do and with `wanderbus backup`, and are put back later. An event that was acknowledged after the
copy may be lost with it, but not silently: it arrives, or its owner reads a gap, an error or a warning.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Protocol

from faults import short_log
from faults.restoring.agent_world import AgentWorld
from faults.restoring.domain_world import decentralised, ordered
from faults.restoring.kind import Tried
from faults.restoring.outbox_world import OutboxWorld
from faults.restoring.server_world import ServerWorld
from harness.reporting import finish, goal, progress


class World(Protocol):
    """Programs in a directory, whose state is restored again and again."""

    tried: Tried
    """Results so far."""

    async def run(self, points: int) -> Tried:
        """Try ``points`` points; return what was found."""
        ...


def _lake(directory: Path, random: Random) -> World:
    # Only these worlds load Spark.
    from faults.restoring.lake_world import LakeWorld

    return LakeWorld(directory, random)


class Kind(NamedTuple):
    """A kind of worlds: how one is made, its share of all points, and how many points a world has."""

    make: Callable[[Path, Random], World]
    share: float
    points_a_world: int


KINDS: Final[Mapping[str, Kind]] = {
    "server": Kind(ServerWorld, 0.4, 10),
    "agent": Kind(AgentWorld, 0.15, 12),
    "outbox": Kind(OutboxWorld, 0.15, 12),
    "lake": Kind(_lake, 0.05, 12),
    "ordered": Kind(ordered, 0.15, 8),
    "decentralised": Kind(decentralised, 0.15, 8),
}
POINTS_MIN: Final = 500
WORLD_S_MAX: Final = 90.0
POINT_S_MAX: Final = 120.0
"""Longest time of a world, and of each of its points; only a failure takes so long."""

PROGRESS_EACH_S: Final = 1.8


class Job(NamedTuple):
    """The points of one world."""

    kind: str
    seed: int
    points: int


def main(arguments: list[str] | None = None) -> int:
    """Try the points of the command line; return the exit status."""
    options = _options(arguments)
    print(f"seed {options.seed}", flush=True)
    began = shown = time.monotonic()
    total = Tried()
    results: dict[str, Tried] = {kind: Tried() for kind in options.kind}
    for job, tried in _results(_jobs(options), options.jobs, began + options.limit_s):
        results[job.kind].add(tried, f"{job.kind} {job.seed}")
        known = len(total.words)
        total.add(tried, f"./do restore --kind {job.kind} --world {job.seed} --points {job.points}")
        for word in total.words[known:]:
            print(word, file=sys.stderr)
        if time.monotonic() - shown >= PROGRESS_EACH_S:
            shown = time.monotonic()
            progress(f"restore: {total.points} of {options.points} points, {total.silent_losses} events lost silently")
    wall_s = round(time.monotonic() - began, 1)
    for kind, tried in results.items():
        print(
            f"{kind}: {tried.points} points, {tried.silent_losses} lost silently, {tried.errors} errors, "
            f"{dict(tried.figures)}"
        )
    goals = [
        goal("restore_silent_losses", total.silent_losses, "events", most=0),
        goal("restore_errors", total.errors, "found", most=0),
        goal("restore_points", total.points, "points", least=POINTS_MIN),
    ]
    rows = [
        {"kind": kind, "seed": options.seed, "points": each.points, "wall_s": wall_s, **each.figures}
        for kind, each in results.items()
    ]
    status = finish("restore", rows, goals, file=options.json, strict=options.strict)
    return status or int(bool(total.silent_losses or total.errors) or total.points < options.points)


def try_world(job: Job) -> Tried:
    """Run one world, in a directory of its own."""
    log = logging.getLogger("wanderbus")
    log.propagate, log.handlers = False, [logging.NullHandler()]
    short_log.shorten()
    with tempfile.TemporaryDirectory(prefix=f"wanderbus-restore-{job.kind}-") as directory:
        world = KINDS[job.kind].make(Path(directory), Random(f"{job.kind} {job.seed}"))
        return asyncio.run(_within_time(world, job.points))


async def _within_time(world: World, points: int) -> Tried:
    try:
        async with asyncio.timeout(WORLD_S_MAX + points * POINT_S_MAX):
            return await world.run(points)
    except TimeoutError:
        world.tried.broken(f"point {world.tried.points}: the world did not end")
    except Exception as error:  # a failure of one world must not end the others
        first = str(error).partition("\n")[0]
        world.tried.broken(f"point {world.tried.points}: {type(error).__name__}: {first}")
    return world.tried


def _jobs(options: argparse.Namespace) -> list[Job]:
    """Return the worlds of the chosen kinds, in turns."""
    shares = sum(KINDS[kind].share for kind in options.kind)
    found: list[tuple[float, Job]] = []
    for kind in options.kind:
        each = KINDS[kind]
        wanted = math.ceil(options.points * each.share / shares)
        points = [min(each.points_a_world, wanted - done) for done in range(0, wanted, each.points_a_world)]
        first = options.seed * 1_000_000 if options.world is None else options.world
        worlds = enumerate(points if options.world is None else [options.points])
        found += [(number / len(points), Job(kind, first + number, count)) for number, count in worlds]
    return [job for _, job in sorted(found)]


def _results(jobs: list[Job], processes: int | None, until: float) -> Iterator[tuple[Job, Tried]]:
    if len(jobs) == 1:
        yield jobs[0], try_world(jobs[0])
        return
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        waiting = {pool.submit(try_world, job): job for job in jobs}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
                if time.monotonic() > until:
                    progress("restore: stopped at the time limit")
                    return
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do restore", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=POINTS_MIN, help="number of restorations (default: %(default)s)")
    parser.add_argument(
        "--kind", action="append", choices=KINDS, help="restore only this kind of state; repeatable (default: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the worlds (default: %(default)s)")
    parser.add_argument(
        "--world", type=int, metavar="SEED", help="run only the world with this seed, as a failure names it"
    )
    parser.add_argument("--limit-s", type=float, default=1_200.0, help="time limit in seconds (default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each processor)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument(
        "--strict", action="store_true", help="exit with status 1 if a goal is not met; silent losses always do"
    )
    options = parser.parse_args(arguments)
    options.kind = options.kind or list(KINDS)
    return options
