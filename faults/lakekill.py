"""Kill the job log → lake at random instants while its logs grow, and compare the lake with one made in one go.

The job is a Spark driver with its Java and its workers, in a process of its own, killed with ``kill -9``: while it
starts, while it writes files, before or after a commit, during a compaction, or at any time; all its processes, or the
driver alone, so that the rest of the old job and the next one overlap. Sometimes what killed jobs left is vacuumed.
The logs of several servers of a domain share one lake; every event has to stay that of the server that accepted it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from faults.kill_options import INTERRUPTED, cancel_on_signals, kill_options
from faults.lake_differences import differences
from faults.lake_log import DECLARED
from faults.lake_logs import Differences, GrowingLogs
from faults.process_tree import descendants, kill, wait_until_gone
from faults.victim import Died, Victim
from harness.reporting import finish, goal, progress
from wanderbus.errors import WanderbusError
from wanderbus.pipeline.lake import ingest, reconcile, vacuum
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.logs import add_logs, logs_in
from wanderbus.pipeline.lake.reconciliation import SegmentReport
from wanderbus.pipeline.session import spark_session
from wanderbus.pipeline.tables import TABLES

MOMENTS: Final = ("starting", "any", "write", "commit", "committed", "compaction")
"""Moments of kills: the last four are words that the job prints (:mod:`faults.lake_job`)."""

ALONE_SHARE: Final = 0.25
VACUUM_SHARE: Final = 0.3
RECORDS_A_STEP: Final = 40
AFTER_WORD_S_MAX: Final = 0.04
ANY_S_MAX: Final = 4.0
WORDS_SKIPPED_MAX: Final = 6
SILENCE_S_MAX: Final = 60.0


class Run:
    """One run in one directory."""

    def __init__(self, directory: Path, random: Random, servers: int) -> None:
        self.kills: Counter[str] = Counter()
        self.lake, self.checkpoints = directory / "lake", directory / "checkpoints"
        self.growing = GrowingLogs(directory, random, servers)
        self._random = random
        places = map(str, (self.lake, self.checkpoints, *self.growing.logs))
        self._job = Victim("the job", "faults.lake_job", *places, errors=directory / "job.stderr")
        self.is_interrupted = False
        self._left: set[int] = set()

    async def play(self, cycles: int, until: float) -> int:
        """Kill ``cycles`` times, until monotonic second ``until``, or until this is cancelled; return the kills.

        Raises :class:`Died` if a job ends by itself.
        """
        cancel_on_signals()
        done = 0
        try:
            while done < cycles and time.monotonic() < until:
                await self._cycle(MOMENTS[done % len(MOMENTS)])
                done += 1
                progress(f"lakekill: {done} of {cycles} kills, {self.growing.records} records")
        except asyncio.CancelledError:
            self.is_interrupted = True
        finally:
            await self._job.kill()
            kill(self._left)
            await wait_until_gone(self._left)
        return done

    async def _cycle(self, moment: str) -> None:
        random = self._random
        self.growing.grow(RECORDS_A_STEP)
        await self._job.start()
        if moment == "starting":
            await asyncio.sleep(random.uniform(0.2, 1.0) * (self._job.ready_s or 3.0))
        else:
            await self._job.ready()
            await self._until(moment)
        alone = random.random() < ALONE_SHARE
        self.kills[f"{moment}, driver" if alone else moment] += 1
        await self._kill(alone)
        if random.random() < VACUUM_SHARE:
            await wait_until_gone(self._left)  # vacuum may remove the files of a job that still runs
            self._vacuum()

    async def _until(self, moment: str) -> None:
        """Wait for the moment, and then a little."""
        if moment == "any":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(0, ANY_S_MAX)):
                    while True:
                        await self._next_word()
            return
        skipped = self._random.randrange(WORDS_SKIPPED_MAX) if moment != "compaction" else self._random.randrange(2)
        while skipped >= 0:
            skipped -= await self._next_word() == moment
        await asyncio.sleep(self._random.uniform(0, AFTER_WORD_S_MAX))

    async def _next_word(self) -> str:
        """Return the next step that the job reports; the log grows with each, however slow the machine is."""
        word = await self._job.line(SILENCE_S_MAX)
        self.growing.grow(RECORDS_A_STEP)
        return word

    async def _kill(self, alone: bool) -> None:
        """Kill the driver, and unless ``alone`` its Java and their workers, which lead a group of their own."""
        self._left |= descendants(self._job.pid)
        await self._job.kill(alone=alone)
        if not alone:
            kill(self._left)

    def _vacuum(self) -> None:
        """Remove what no version of now needs."""
        for each in TABLES:
            if LakeTable(self.lake, each).exists:
                self.kills["vacuumed files"] += vacuum(self.lake, each, retention_hours=0)


class Compared(NamedTuple):
    """Result of :func:`compare`; all but ``segments`` are 0 if nothing is wrong."""

    tables: dict[str, int]
    """Rows that differ between the two lakes, by table."""
    unequal: int
    """Segments of which the lake has other records than the log."""
    origins: Differences
    """Rows that name another server, or another record of it, than the logs."""
    segments: int

    @property
    def differing(self) -> int:
        """Rows that differ between the two lakes."""
        return sum(self.tables.values())

    @property
    def is_right(self) -> bool:
        """True if nothing is wrong."""
        return not (self.differing or self.unequal or sum(self.origins))


def compare(run: Run, directory: Path) -> Compared:
    """Let one more job come to the ends of all logs; compare its lake with one made in one go, and with the logs."""
    whole = directory / "whole"
    spark = spark_session("wanderbus-lakekill")
    found: list[SegmentReport] = []
    add_logs(run.lake, [each.identity for each in run.growing.logs.values()])
    add_logs(whole, logs_in(run.lake).identities)
    for log, growing in run.growing.logs.items():
        ingest(spark, log, run.lake, run.checkpoints / growing.identity, declared=DECLARED)
        ingest(spark, log, whole, directory / f"whole-{growing.identity}", declared=DECLARED)
        segments = reconcile(spark, log, run.lake)
        if sum(each.log.records for each in segments) != growing.records:
            raise Died(f"the lake does not reach the end of the log {growing.identity}: {segments[-1]}")
        found += segments
    unequal = sum(each.differs for each in found)
    origins = run.growing.differences(spark, run.lake)
    return Compared(differences(spark, run.lake, whole), unequal, origins, len(found))


def main(arguments: list[str] | None = None) -> int:
    """Run the cycles of the command line; return the exit status."""
    options = _options(arguments)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    again = f"--seed {seed}" if options.servers == 1 else f"--seed {seed} --servers {options.servers}"
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="wanderbus-lakekill-"))
    began = time.monotonic()
    run = Run(directory, Random(seed), options.servers)
    try:
        done = asyncio.run(run.play(options.cycles, began + options.limit_s))
        progress("lakekill: making a lake in one go, and comparing")
        compared = compare(run, directory)
    except (Died, WanderbusError) as error:
        print(f"{error}\nwhat is left is in {directory}; again with: ./do lakekill {again}", file=sys.stderr)
        return 1
    finally:
        run.growing.close()
    wall_s = round(time.monotonic() - began, 1)
    cycles = f"{'interrupted: ' if run.is_interrupted else ''}{done} of {options.cycles}"
    print(f"{cycles} kills {dict(run.kills)}, {run.growing.records} records, {compared.segments} segments, {wall_s} s")
    if compared.is_right:
        shutil.rmtree(directory)
    else:
        print(f"{compared}; what is left is in {directory}; again with {again}", file=sys.stderr)
    goals = [
        goal("restarts_differences", compared.differing, "rows", most=0),
        goal("reconcile_differences", compared.unequal, "segments", most=0),
        goal("origin_differences", sum(compared.origins), "rows", most=0),
    ]
    figures = {
        "seed": seed,
        "servers": options.servers,
        "interrupted": run.is_interrupted,
        "kills": run.kills,
        "records": run.growing.records,
        "segments": compared.segments,
        "wall_s": wall_s,
    }
    status = finish(
        "lakekill", [{**figures, "tables": compared.tables}], goals, file=options.json, strict=options.strict
    )
    if run.is_interrupted and compared.is_right:
        return status or INTERRUPTED
    return status or int(not compared.is_right or done < options.cycles)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    return kill_options(
        arguments,
        "lakekill",
        __doc__,
        victim="job",
        cycles=24,
        limit_s=1200.0,
        failures="differences",
        servers="number of servers whose logs share the lake",
    )
