"""Cut the power of a broker at random points of a recorded disk, and compare what recovers with what was promised.

The real log, committer, state store and broker run; their writes are recorded, synced or not. For each point a disk is
made with all synced data and any part of the rest, down to single sectors; the real recovery reads it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from faults.cutting import Image, cut
from faults.life import PUBLISHES_REMEMBERED, Life, World
from faults.recording import Promise, Recorder, Step, Sync, SyncNames
from faults.verdict import Verdict, check_publishes, check_state, folded
from harness.reporting import finish, progress
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import WanderbusError
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.committer import LogEntry
from wanderbus.runtime.log.log_check import check_log

POINTS_A_WORLD: Final = 25
LIVES_A_WORLD: Final = 5
STEPS_A_LIFE: Final = (20, 160)
PROGRESS_EACH_S: Final = 1.5


@dataclass
class WorldResult:
    """Results of the points of one world."""

    seed: int
    points: int = 0
    records: int = 0
    steps: int = 0
    kept_unsynced: int = 0
    """Records that survived without a promise."""
    verdict: Verdict = field(default_factory=Verdict)


def main(arguments: list[str] | None = None) -> int:
    """Try the points of the command line; return the exit status."""
    options = _options(arguments)
    print(f"seed {options.seed}", flush=True)
    began = shown = time.monotonic()
    total = WorldResult(options.seed)
    for result in _worlds(options.seed, options.points, options.points_a_world, options.jobs):
        for count in ("points", "records", "steps", "kept_unsynced"):
            setattr(total, count, getattr(total, count) + getattr(result, count))
        total.verdict.add(result.verdict, f"world {result.seed}")
        if time.monotonic() - shown >= PROGRESS_EACH_S:
            shown = time.monotonic()
            progress(f"powercut: {total.points} of {options.points} points, {total.verdict.counts.total()} broken")
        if shown - began > options.limit_s:
            progress(f"powercut: stopped after {options.limit_s:g} s")
            break
    for word in total.verdict.words:
        print(word, file=sys.stderr)
    if not total.verdict.good:
        print(f"see it again with: ./do powercut --seed {options.seed} --points {options.points}", file=sys.stderr)
    wall_s = round(time.monotonic() - began, 1)
    print(f"{total.points} points, {total.records} records, {total.steps} steps of the disk, {wall_s} s")
    results = [{name: getattr(total, name) for name in ("seed", "points", "records", "steps", "kept_unsynced")}]
    results[0]["wall_s"] = wall_s
    status = finish("powercut", results, total.verdict.goals(), file=options.json, strict=options.strict)
    return status or int(not total.verdict.good or total.points < options.points)


def try_world(seed: int, points: int) -> WorldResult:
    """Run one broker, cut its power and run it again, and try ``points`` points of its lives."""
    result = WorldResult(seed)
    world = World.begin(Random(seed))
    image = Image()
    shares = [points // LIVES_A_WORLD + (life < points % LIVES_A_WORLD) for life in range(LIVES_A_WORLD)]
    with tempfile.TemporaryDirectory(prefix="wanderbus-powercut-") as directory:
        for life, share in enumerate(shares):
            try:
                image = _try_life(world, image, Path(directory, str(life)), share, result)
            except Exception as error:
                result.verdict.broken("integrity_errors", f"life {life}: {type(error).__name__}: {error}")
                break
    return result


def _try_life(world: World, start: Image, root: Path, points: int, result: WorldResult) -> Image:
    """Try ``points`` points of one life, the last of which ends it; return the disk for the next life."""
    start.lay_out(root)
    recorder = Recorder(root, start.names)
    life = Life(world, root, recorder)
    last = life.live(world.random.randint(*STEPS_A_LIFE))
    steps = list(recorder.steps)
    life.close()
    result.steps += len(steps)
    result.records += len(life.handed)
    left = start
    for point in reversed(range(points)):
        # Each point has its own random source: leaving one out changes no other.
        random = Random(f"{result.seed} {root.name} {point}")
        until = _instant(steps, 0 if point else last, random)
        left = cut(start, steps[:until], random)
        found = check_image(left, steps[:until], life.handed, root.with_name("image"), result)
        result.verdict.add(found, f"life {root.name}, step {until} of {len(steps)}")
        result.points += 1
    shutil.rmtree(root)
    return left


def _instant(steps: Sequence[Step], first: int, random: Random) -> int:
    """Return a number of steps after which power fails: in half of the cases the next step is a sync."""
    syncs = [index for index in range(first, len(steps)) if isinstance(steps[index], Sync | SyncNames)]
    return random.choice(syncs) if syncs and random.random() < 0.5 else random.randint(first, len(steps))


def check_image(
    image: Image, steps: Sequence[Step], handed: Sequence[LogEntry], root: Path, result: WorldResult
) -> Verdict:
    """Recover from ``image`` with the code that a server uses, and compare with what was promised by ``steps``."""
    verdict = Verdict()
    promised = max((step.durable for step in steps if isinstance(step, Promise)), default=0)
    image.lay_out(root)
    try:
        files = ServerFiles.open(root)
        try:
            (state,) = files.load_states(lambda: [BrokerState(files.identity.server, PUBLISHES_REMEMBERED)])
            records = [(frame.offset, frame.at_us, frame.payload) for frame in files.log.read()]
        finally:
            files.close()
        _check_records(verdict, records, handed, promised)
        payloads = [payload for _, _, payload in records]
        check_publishes(verdict, payloads)
        check_state(verdict, state, folded(files.identity.server, PUBLISHES_REMEMBERED, payloads))
        for damage in check_log(root / "log").damage:
            verdict.broken("integrity_errors", damage)
        result.kept_unsynced += max(0, len(records) - promised)
    except WanderbusError as error:
        verdict.broken("integrity_errors", f"{type(error).__name__}: {error}")
    except Exception as error:
        verdict.broken("integrity_errors", f"undeclared {type(error).__name__}: {error}")
    shutil.rmtree(root)
    return verdict


def _check_records(verdict: Verdict, found: Sequence[LogEntry], handed: Sequence[LogEntry], promised: int) -> None:
    """Check that ``found`` is a prefix of ``handed`` that contains all promised records."""
    if len(found) < promised:
        verdict.broken("lost", f"{promised} records were promised, {len(found)} are there", promised - len(found))
    if [offset for offset, _, _ in found] != list(range(len(found))):
        verdict.broken("out_of_order", "the offsets do not rise by one")
    elif differing := [
        ours[0] for ours, theirs in itertools.zip_longest(found, handed[: len(found)]) if ours != theirs
    ]:
        verdict.broken("integrity_errors", f"record {differing[0]} is not what was written", len(differing))


def _worlds(seed: int, points: int, points_a_world: int, jobs: int | None) -> Iterator[WorldResult]:
    shares = [min(points_a_world, points - done) for done in range(0, points, points_a_world)]
    seeds = range(seed * 1_000_000, seed * 1_000_000 + len(shares))
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        try:
            yield from pool.map(try_world, seeds, shares)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do powercut", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=500, help="number of cuts (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cuts (default: %(default)s)")
    parser.add_argument(
        "--points-a-world", type=int, default=POINTS_A_WORLD, help="cuts of one recording (default: %(default)s)"
    )
    parser.add_argument("--limit-s", type=float, default=600.0, help="time limit in seconds (default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each processor)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument(
        "--strict", action="store_true", help="exit with status 1 if a goal is not met; broken promises always do"
    )
    return parser.parse_args(arguments)
