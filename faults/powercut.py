"""Cut the power of a broker at random points of a recorded disk, and compare what recovers with what was promised.

The real log, committer, state store and broker run; their writes are recorded, synced or not. For each point a disk is
made with all synced data and any part of the rest, down to single sectors; the real recovery reads it.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from faults.cutting import Image, cut
from faults.life import PUBLISHES_REMEMBERED, Life, World
from faults.recording import Promise, Recorder, Step, Sync, SyncNames
from faults.verdict import Verdict, check_publishes, check_state, folded
from harness.reporting import finish, progress
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import WanderbusError
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.files.state_generations import NAMES
from wanderbus.runtime.log.committer import LogEntry
from wanderbus.runtime.log.log_check import check_log
from wanderbus.runtime.log_readers import load_reader, reader_files

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
    cut: int = 0
    """Points after which the log lacked its first records."""
    verdict: Verdict = field(default_factory=Verdict)


def main(arguments: list[str] | None = None) -> int:
    """Try the points of the command line; return the exit status."""
    options = _options(arguments)
    print(f"seed {options.seed}", flush=True)
    began = shown = time.monotonic()
    total = WorldResult(options.seed)
    for result in _worlds(options.seed, options.points, options.points_a_world, options.jobs):
        for count in ("points", "records", "steps", "kept_unsynced", "cut"):
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
    results = [{name: getattr(total, name) for name in ("seed", "points", "records", "steps", "kept_unsynced", "cut")}]
    results[0]["wall_s"] = wall_s
    status = finish("powercut", results, total.verdict.goals(), file=options.json, strict=options.strict)
    return status or int(not total.verdict.good or total.points < options.points)


@contextmanager
def _silent() -> Iterator[None]:
    """Log nothing of the server: damage is made, and reported, at every point."""
    log = logging.getLogger("wanderbus.server")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


@_silent()
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
    world.history = life.handed
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
        found = check_damage(left, life.handed, root.with_name("image"), random)
        result.verdict.add(found, f"life {root.name}, step {until} of {len(steps)}, damaged")
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
        recovered = _recover(root)
        _check(verdict, recovered, handed, promised)
        for damage in check_log(root / "log").damage:
            verdict.broken("integrity_errors", damage)
        result.kept_unsynced += max(0, recovered.end - promised)
        result.cut += bool(recovered.first)
    except WanderbusError as error:
        verdict.broken("integrity_errors", f"{type(error).__name__}: {error}")
    except Exception as error:
        verdict.broken("integrity_errors", f"undeclared {type(error).__name__}: {error}")
    shutil.rmtree(root)
    return verdict


def check_damage(image: Image, handed: Sequence[LogEntry], root: Path, random: Random) -> Verdict:
    """Damage one of two generations of the state; the other one has to replace it, also after the next start."""
    verdict = Verdict()
    if not all(name in image.names for name in NAMES):
        return verdict
    image.lay_out(root)
    name = random.choice(NAMES)
    how = _damage(root / name, random)
    try:
        for _ in range(2):
            recovered = _recover(root, secure=True)
            _check(verdict, recovered, handed, 0)
    except Exception as error:
        verdict.broken("integrity_errors", f"{how} {name}: {type(error).__name__}: {error}")
    shutil.rmtree(root)
    return verdict


def _damage(path: Path, random: Random) -> str:
    """Damage a file that SQLite writes, together with the log that it keeps beside; return how."""
    beside = path.with_name(f"{path.name}-wal")
    match random.choice(("change", "change", "change in the log of", "cut off", "delete")):
        case "delete":
            path.unlink()
            beside.unlink(missing_ok=True)
            return "delete"
        case "cut off":
            os.truncate(path, random.choice((0, path.stat().st_size // 2)))
            return "cut off"
        case how:
            changed = beside if how != "change" and beside.exists() else path
            data = bytearray(changed.read_bytes())
            for _ in range(random.choice((1, 20)) if data else 0):
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            changed.write_bytes(data)
            return how


class _Recovered(NamedTuple):
    """State and log after a start, and the offset of the reader of the log."""

    state: BrokerState
    records: list[LogEntry]
    first: int
    reader: int | None

    @property
    def end(self) -> int:
        return self.first + len(self.records)


def _recover(root: Path, *, secure: bool = False) -> _Recovered:
    """Start with the files below ``root``, and bring both generations of the state up to date if ``secure``."""
    files = ServerFiles.open(root)
    try:
        (state,) = files.load_states(lambda: [BrokerState(files.identity.server, PUBLISHES_REMEMBERED)])
        records = [(frame.offset, frame.at_us, frame.payload) for frame in files.log.read()]
        first = files.log.oldest_offset
        readers = [reader.offset for path in reader_files(root / "log") if (reader := load_reader(path))]
        if secure:
            files.store.save(state.changes(), state.offset)
            files.store.secure()
    finally:
        files.close()
    return _Recovered(state, records, first, min(readers, default=None))


def _check(verdict: Verdict, found: _Recovered, handed: Sequence[LogEntry], promised: int) -> None:
    """Check that the log is a part of ``handed`` with all promised records that are needed, and the state its result.

    The removed records are those of ``handed``, which the state has to reflect.
    """
    if found.end < promised:
        verdict.broken("lost", f"{promised} records were promised, {found.end} are there", promised - found.end)
    if found.reader is not None and found.first > found.reader:
        verdict.broken(
            "lost", f"the reader is at {found.reader}, the log begins at {found.first}", found.first - found.reader
        )
    if [offset for offset, _, _ in found.records] != list(range(found.first, found.end)):
        verdict.broken("out_of_order", "the offsets do not rise by one")
    elif differing := [
        ours[0]
        for ours, theirs in itertools.zip_longest(found.records, handed[found.first : found.end])
        if ours != theirs
    ]:
        verdict.broken("integrity_errors", f"record {differing[0]} is not what was written", len(differing))
    payloads = [payload for _, _, payload in handed[: found.end]]
    check_publishes(verdict, payloads)
    check_state(verdict, found.state, folded(found.state.server, PUBLISHES_REMEMBERED, payloads))


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
