"""Run of several processes of agents, which publish while servers are killed, and the report of it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, Protocol

from faults.kill_options import INTERRUPTED, cancel_on_signals
from faults.verdict import Verdict
from faults.victim import Died, Victim
from harness.reporting import Goal, finish, progress_shown
from wanderbus.testbed import CannotRunError

LOOK_EACH_S: Final = 1.0
SILENT_S_MAX: Final = 60.0
LEAST_SHARE: Final = 0.1
"""Least share of the asked rate with which a run proves something."""


class Servers(Protocol):
    """The servers of a run."""

    async def start(self) -> None:
        """Start all of them."""

    async def end(self) -> None:
        """End all of them."""


class AgentsRun(ABC):
    """One run; a subclass gives it servers and processes, and disturbs them.

    :param faults: kinds of faults
    :param counts: number of the counts that a process of agents reports; the first two are the events that are
        acknowledged, and those without an answer
    """

    quiet_s_max: ClassVar[float]
    """Time in which something has to happen while the run waits for the rest."""
    end_s_max: ClassVar[float | None] = None
    """Time in which processes of agents end by themselves; None if they are killed."""

    def __init__(self, faults: Iterable[str], counts: int, rate_per_s: float, seed: int) -> None:
        self.verdict = Verdict()
        self.faults = dict.fromkeys(faults, 0)
        self.published_s = 0.0
        """Duration of publishing."""
        self.counts = [0] * counts
        """The counts of all processes together."""
        self._interrupted = asyncio.Event()
        self._random = Random(seed)
        self._rate_per_s = rate_per_s
        self._is_settled = False
        """True once everything that is due had time to arrive."""

    def _use(self, servers: Servers, processes: Mapping[str, Victim]) -> None:
        """Take the servers, and the processes of agents by name."""
        self._all_servers = servers
        self._processes = processes
        self._latest = {name: [0] * len(self.counts) for name in processes}

    async def play(self, seconds: float) -> None:
        """Publish for ``seconds`` with faults, or until :meth:`interrupt`; then let everything settle."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._begin()
                listening = [group.create_task(self._listen(name)) for name in self._processes]
                await self._publish(seconds, group)
                await self._drain()
                self._is_settled = True
                for task in listening:
                    task.cancel()
                if (end_s := self.end_s_max) is not None:
                    for process in self._processes.values():
                        await process.end(end_s)
        except* (Died, CannotRunError) as group_of_errors:
            for error in group_of_errors.exceptions:
                self.verdict.broken("integrity_errors", str(error))
        finally:
            for end in (self._all_servers.end, *(process.kill for process in self._processes.values())):
                try:
                    await end()
                except Died as died:
                    self.verdict.broken("integrity_errors", str(died))

    def interrupt(self) -> None:
        """End publishing now."""
        self._interrupted.set()

    @property
    def is_interrupted(self) -> bool:
        """Return whether publishing was ended early."""
        return self._interrupted.is_set()

    @abstractmethod
    async def _publish(self, seconds: float, group: asyncio.TaskGroup) -> None:
        """Let agents publish for ``seconds`` while faults begin."""

    @abstractmethod
    async def _drain(self) -> None:
        """Wait until every publish is answered, and all that is due has arrived or nothing arrives any more."""

    @abstractmethod
    def results(self) -> dict[str, Any]:
        """Compare what the agents got with what was due; return the figures of the report."""

    @abstractmethod
    def progress_words(self) -> str:
        """Return what has happened so far, in a line."""

    def _lacking(self, figures: Mapping[str, Any]) -> list[str]:
        """Return why the figures prove nothing."""
        found = [f"no {name}" for name, count in self.faults.items() if not count]
        if (rate_per_s := figures["rate_per_s"]) < (least := LEAST_SHARE * self._rate_per_s):
            found.append(f"{rate_per_s} events/s, less than {least:g}")
        return found

    async def _begin(self) -> None:
        """Start all processes; all agents have subscribed before the first event is published."""
        await self._all_servers.start()
        for process in self._processes.values():
            await process.start()
        for process in self._processes.values():
            await process.ready()

    async def _listen(self, name: str) -> None:
        """Keep the latest counts of a process of agents."""
        while True:
            self._latest[name] = [int(word) for word in (await self._processes[name].line(SILENT_S_MAX)).split()]
            self.counts = [sum(each) for each in zip(*self._latest.values(), strict=True)]

    async def _interrupted_before(self, end: float) -> bool:
        """Wait until monotonic second ``end``; return True, and at once, if this is interrupted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(end - time.monotonic()):
                await self._interrupted.wait()
        return self.is_interrupted

    def _tell(self, word: str) -> None:
        for process in self._processes.values():
            process.tell(word)

    async def _quiet(self, is_done: Callable[[], bool], until: float) -> None:
        """Wait until ``is_done``, but not longer than something still happens."""
        moved, before = time.monotonic(), list[int]()
        while time.monotonic() < min(until, moved + self.quiet_s_max):
            await asyncio.sleep(LOOK_EACH_S)  # the counts are half as old
            if self.counts != before:
                before, moved = self.counts, time.monotonic()
            elif is_done():
                return


async def play(run: AgentsRun, command: str, seconds: float) -> None:
    """Play a run, and show how far it is; a signal ends publishing."""
    cancel_on_signals()
    playing = asyncio.create_task(run.play(seconds))
    async with progress_shown(lambda: f"{command}: {run.progress_words()}, {sum(run.faults.values())} faults"):
        try:
            await asyncio.shield(playing)
        except asyncio.CancelledError:
            run.interrupt()
            await playing


def is_good(run: AgentsRun, results: Mapping[str, Any]) -> bool:
    """Return whether no promise was broken, and the figures prove something."""
    return run.verdict.good and not results["too_little"]


def conclude(
    command: str,
    run: AgentsRun,
    results: Mapping[str, Any],
    goals: Sequence[Goal],
    about: Mapping[str, Any],
    directory: Path,
    options: argparse.Namespace,
) -> int:
    """Report a run, whose line of figures begins with ``about``; return the exit status.

    The directory stays if something was wrong.
    """
    good = is_good(run, results)
    for word in [*run.verdict.words, *(f"too little to prove anything: {word}" for word in results["too_little"])]:
        print(word, file=sys.stderr)
    if good:
        shutil.rmtree(directory)
    else:
        print(f"what is left is in {directory}; again with: ./do {command} --seed {about['seed']}", file=sys.stderr)
    line = {**about, **results}
    print(", ".join(f"{name} {value}" for name, value in line.items()))
    status = finish(command, [line], goals, file=options.json, strict=options.strict)
    if run.is_interrupted and run.verdict.good:
        return status or INTERRUPTED
    return status or int(not good)
