"""Kill the matching engine, its parts and its server at random instants, and compare what agents got with what was due.

Agents publish and consume through a server that leaves all subjects to Spark. Each cycle kills one process with
``kill -9``, at any time or while it starts: the engine with all its processes, its driver alone, its Java, one of its
Python processes, or the server. Before most kills there are matches of the present engine. Whatever is killed is
started again, except for a Python process: Spark or the engine does that.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random
from typing import Final

from faults import crash
from faults.agents import lines_of
from faults.kill_options import kill_options
from faults.process_tree import descendants, kill, named, wait_until_gone
from faults.verdict import KINDS
from faults.victim import Died, Victim
from harness.reporting import Goal, goal
from wanderbus.runtime.segment_files import durable_end

HOW: Final = ("engine", "driver", "java", "python", "server", "starting")
"""Processes that are killed; ``starting`` is the engine in the middle of its start."""

LIVES_S_MAX: Final = 2.0
"""Time from the first matches of an engine to the next kill."""

UNMATCHED_SHARE: Final = 0.2
"""Share of the kills that do not wait for matches."""

ENGINE_READY_S_MAX: Final = 300.0
"""Longest start of the engine: Java and Spark take long if others use the processors too."""

MATCHES_S_MAX: Final = 300.0
FALLS_S_MAX: Final = 180.0

_SETTINGS: Final = """\
log_keep_bytes = 0
[broker]
spark_subjects = ["*"]
[broker.queue]
notifications_max = 1000000
bytes_max = 1000000000
"""


class Run(crash.Run):
    """One run in one directory."""

    command = "enginekill"
    settings = _SETTINGS
    consuming = crash.CONSUMERS
    kinds = HOW
    drain_s_max, quiet_s_max = 900.0, 180.0

    def __init__(self, directory: Path, random: Random, *, is_federated: bool = False) -> None:
        super().__init__(directory, random, is_federated=is_federated)
        arguments = ("pipeline", "engine", str(self.data), "--json")
        self._engine = Victim(
            "the engine", "wanderbus", *arguments, errors=directory / "engine.stderr", ready_s_max=ENGINE_READY_S_MAX
        )
        self._is_starting = self._is_server_starting = False
        self._left: set[int] = set()

    def _victims(self) -> list[Victim]:
        return [self._engine, *super()._victims()]

    async def _begin(self) -> None:
        await super()._begin()
        await self._server_ready()
        await self._start()

    def goals(self) -> list[Goal]:
        """Return the goals of the report."""
        return [goal(f"engine_{kind}", self.verdict.counts[kind], "found", most=0) for kind in KINDS]

    async def _cycle(self) -> None:
        how = HOW[sum(self.kills.values()) % len(HOW)]
        await self._server_ready()
        if how == "starting":
            kill(await self._kill_driver())
            await self._start()
            await asyncio.sleep(self._random.uniform(0.2, 1.2) * (self._engine.ready_s or 5.0))
        else:
            await self._ready()
            if self._random.random() >= UNMATCHED_SHARE:
                await self._matches()
            await asyncio.sleep(self._random.uniform(0, LIVES_S_MAX))
            for role in self.publishers:
                self._agents[role.device].tell("burst")
        self.kills[how] += 1
        match how:
            case "engine" | "starting":
                kill(await self._kill_driver())
                await self._start()
            case "driver":
                await self._kill_driver()
                await self._start()
            case "java":
                self._left |= descendants(self._engine.pid)
                kill([self._random.choice(named(self._left, "java"))])
                await self._engine.fall(FALLS_S_MAX)
                await self._start()
            case "python":
                kill([self._random.choice(named(descendants(self._engine.pid), "python"))])
            case "server":
                await self._kill_server()
        await wait_until_gone(self._left)

    async def _end(self) -> None:
        await self._server_ready()
        await self._ready()
        await self._drain()

    async def _kill_server(self) -> None:
        await super()._kill_server()
        self._is_server_starting = True

    async def _server_ready(self) -> None:
        if self._is_server_starting:
            await self._server.ready()
            self._is_server_starting = False

    async def _start(self) -> None:
        self._is_starting = True
        await self._engine.start()

    async def _ready(self) -> None:
        if self._is_starting:
            await self._engine.ready()
            self._is_starting = False

    async def _matches(self) -> None:
        """Wait until an agent has got an event that the present engine has matched; :class:`Died` if none does."""
        end, deadline = durable_end(self.data / "log"), time.monotonic() + MATCHES_S_MAX
        while _last_taken(self.consumers[0].journal) < end:
            if time.monotonic() > deadline:
                raise Died(f"no event was matched within {MATCHES_S_MAX:g} s by an engine that is ready")
            await asyncio.sleep(0.2)

    async def _kill_driver(self) -> set[int]:
        """Kill the driver; return the processes that it leaves."""
        left = descendants(self._engine.pid)
        self._left |= left
        await self._engine.kill(alone=True)
        return left


def _last_taken(journal: Path) -> int:
    """Return the offset of the last event in the journal of a consumer, -1 without one."""
    lines = lines_of(journal)
    return int(lines[-1][3]) if lines else -1


def main(arguments: list[str] | None = None) -> int:
    """Run the cycles of the command line; return the exit status."""
    options = kill_options(
        arguments,
        Run.command,
        __doc__,
        victim="engine",
        cycles=24,
        limit_s=1200.0,
        failures="broken promises",
        may_be_federated=True,
    )
    return crash.conduct(Run, options)
