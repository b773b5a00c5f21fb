"""Runs of the grid in real time, all cells concurrently: real servers, agents and changes of address.

Three servers, one for each buffer, and one process that publishes run on a fixed host; each consumer is a process on a
host of its own. The sample of a single run begins midway between two changes: then the number of whole changes in it is
the rounded mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from wanderbus.errors import WanderbusError
from wanderbus.evaluation.grid import Cell, Experiment
from wanderbus.evaluation.hosts import Hosts
from wanderbus.evaluation.outcome import Outcome, Receipts, outcome
from wanderbus.evaluation.parts import ConsumerTask, DeliveredItem, Order, PublisherTask, RunAccount
from wanderbus.evaluation.plan import RunPlan, plan
from wanderbus.evaluation.roaming import Measured, Script, roam
from wanderbus.testbed.async_processes import AsyncProcess, Crew

START_S: Final = 1.0
"""Time from readiness of all programs to the first event."""

APART_S: Final = 0.25
"""Time between the beginnings of two samples, so that not all consumers move at once."""

READY_S_MAX: Final = 90.0
REST_S_MAX: Final = 30.0
"""Time after the last event at which the consumers must be at rest."""

_DOMAIN: Final = "eval.test"
_PASSWORD: Final = "of the evaluation"
_PROGRAM: Final = (sys.executable, "-m", "wanderbus.evaluation.parts")


class RealRun:
    """One cell: its plan, its consumer, and what the consumer receives."""

    def __init__(self, number: int, cell: Cell, experiment: Experiment, phase: float, run: int) -> None:
        self.number = number
        self.cell = cell
        self.name = f"{experiment.outage}-{cell.buffer}-{cell.period_s}"
        self.begin_s = number * APART_S
        self.plan: RunPlan = plan(cell, experiment, phase, Random(run))
        self.receipts = Receipts()
        self.rested = asyncio.Event()
        self._run = run
        self._news = asyncio.Event()
        self._measured: list[Measured] = []
        self._times_s: list[float] = []
        """Times at which events were received."""

    @property
    def received_s(self) -> float:
        """Return the time of the last received event."""
        return self._times_s[-1]

    def settle_on(self, hosts: Hosts, consumer: AsyncProcess) -> None:
        """Set the host where the consumer runs; called in the event loop, unlike the script's actions."""
        self._loop = asyncio.get_running_loop()
        self._hosts = hosts
        self._consumer = consumer

    def leave(self) -> None:
        """Lose the address."""
        self._hosts.leave(self.number)

    def arrive(self) -> None:
        """Get another address; the agent is given it if it cannot detect it."""
        address = self._hosts.arrive(self.number)
        if self._hosts.gives_address:
            self._loop.call_soon_threadsafe(self._consumer.send, Order(address=address))

    def on_line(self, line: str) -> None:
        """Process a line of the consumer."""
        received = msgspec.json.decode(line, type=DeliveredItem)
        if received.number is None:
            self.receipts.gap(received.count, received.place)
        else:
            self.receipts.event(received.number, received.place)
            self._times_s.append(received.at_s)
            self._news.set()
        if self.receipts.accounted >= self.plan.published:
            self.rested.set()

    async def roam(self, began_s: float) -> None:
        """Run the plan, with second 0 of all runs at ``began_s``, until everything published is accounted for."""
        spacing_s = 1 / self.plan.experiment.rate_per_s
        began_s += self.begin_s
        script = roam(self.plan.changes, began_s, spacing_s, self, self._measured)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(began_s + self.plan.end_s + REST_S_MAX - time.monotonic()):
                await self._follow(script)
                await self.rested.wait()

    async def _follow(self, script: Script) -> None:
        with contextlib.suppress(StopIteration):
            wanted = next(script)
            moment_s = time.monotonic()
            while True:
                if wanted is None:
                    moment_s = await self._next_event(moment_s)
                elif callable(wanted):
                    moment_s = time.monotonic()
                    await asyncio.to_thread(wanted)
                else:
                    await asyncio.sleep(wanted - time.monotonic())
                    moment_s = time.monotonic()
                wanted = script.send(moment_s)

    async def _next_event(self, after_s: float) -> float:
        """Return the time of the first event after ``after_s``; it may be in the past, because reports are late."""
        while (place := bisect_right(self._times_s, after_s)) == len(self._times_s):
            self._news.clear()
            await self._news.wait()
        return self._times_s[place]

    def outcome(self) -> Outcome:
        """Return the outcome."""
        return outcome(self.cell, self._run, self.plan, self.receipts, self._measured)


async def run_side_by_side(runs: Sequence[RealRun], hosts: Hosts, report: Callable[[str], None]) -> list[Outcome]:
    """Run all runs at the same time; ``report`` is called with the progress. Everything is cleaned up in any case.

    Raises :class:`WanderbusError` if one of the processes fails.
    """
    with hosts, tempfile.TemporaryDirectory(prefix="wanderbus-eval-") as directory:
        async with Crew(Path(directory)) as crew:
            programs = _Programs(runs, hosts, Path(directory), crew)
            report("starting servers, publisher and consumers")
            try:
                async with asyncio.timeout(READY_S_MAX):
                    await programs.start()
            except WanderbusError:
                raise
            except TimeoutError:
                raise WanderbusError(f"servers and agents were not ready within {READY_S_MAX:g} s") from None
            await programs.play(report)
    return [run.outcome() for run in runs]


class _Programs:
    """The programs of all runs."""

    def __init__(self, runs: Sequence[RealRun], hosts: Hosts, work: Path, crew: Crew) -> None:
        self._runs = runs
        self._hosts = hosts
        self._work = work
        self._crew = crew
        self._servers: list[AsyncProcess] = []
        self._addresses: dict[int, str] = {}
        """Servers by buffer."""
        self._consumers: list[AsyncProcess] = []

    async def start(self) -> None:
        """Start all programs, and wait until all are connected and have subscribed."""
        users = self._work / "users"
        names = [f"{role}-{run.name}" for run in self._runs for role in ("publisher", "consumer")]
        users.touch(0o600)
        users.write_text("".join(f"{name}:{_PASSWORD}\n" for name in names), encoding="utf-8")
        buffers = sorted({run.cell.buffer for run in self._runs})
        self._servers = [await self._start_server(buffer, users) for buffer in buffers]
        for buffer, server in zip(buffers, self._servers, strict=True):
            # "ready sip:HOST:PORT"
            self._addresses[buffer] = (await server.line()).split()[1].removeprefix("sip:")
        self._consumers = [await self._start_consumer(run) for run in self._runs]
        self._publisher = await self._start_publisher()
        for each in (self._publisher, *self._consumers):
            await each.line()

    async def play(self, report: Callable[[str], None]) -> None:
        """Run all programs until all consumers are at rest."""
        began_s = time.monotonic() + START_S - min(run.plan.begin_s for run in self._runs)
        self._publisher.send(Order(start_s=began_s))
        on_line = [run.on_line for run in self._runs] + [_ignore] * len(self._servers)
        try:
            async with asyncio.TaskGroup() as group:
                others = [
                    group.create_task(each.listen(to))
                    for each, to in zip((*self._consumers, *self._servers), on_line, strict=True)
                ]
                others.append(group.create_task(self._report_progress(began_s, report)))
                roaming = [group.create_task(run.roam(began_s)) for run in self._runs]
                await self._publisher.line()
                await asyncio.wait(roaming)
                for task in others:
                    task.cancel()
        except* WanderbusError as failed:
            first = failed.exceptions[0]
        else:
            return
        raise first

    async def _report_progress(self, began_s: float, report: Callable[[str], None]) -> None:
        ends_s = max(run.begin_s + run.plan.end_s for run in self._runs)
        while True:
            report(f"second {max(0.0, time.monotonic() - began_s):.0f} of {ends_s:.0f}")
            await asyncio.sleep(1)

    async def _start_server(self, buffer: int, users: Path) -> AsyncProcess:
        config = self._work / f"server-{buffer}.toml"
        config.write_text(
            f'domain = "{_DOMAIN}"\nhost = "{self._hosts.server_address}"\nport = 0\n'
            f'users = "{users}"\ndata_dir = "{self._work / f"data-{buffer}"}"\n'
            f'[broker.queue]\nnotifications_max = {buffer}\nwhen_full = "drop_oldest"\n',
            encoding="utf-8",
        )
        argv = [sys.executable, "-m", "wanderbus", "up", "--config", str(config)]
        return await self._run(f"server-{buffer}", self._hosts.fixed(argv))

    async def _start_consumer(self, run: RealRun) -> AsyncProcess:
        local = self._hosts.address(run.number) if self._hosts.gives_address else None
        task = msgspec.json.encode(ConsumerTask(self._account("consumer", run, local), run.name)).decode()
        argv = self._hosts.mobile(run.number, [*_PROGRAM, "consumer", task])
        consumer = await self._run(f"consumer-{run.name}", argv)
        run.settle_on(self._hosts, consumer)
        return consumer

    async def _start_publisher(self) -> AsyncProcess:
        tasks = [
            PublisherTask(
                self._account("publisher", run),
                run.name,
                run.begin_s + run.plan.begin_s,
                run.plan.published,
                run.plan.experiment.rate_per_s,
            )
            for run in self._runs
        ]
        return await self._run(
            "publisher", self._hosts.fixed([*_PROGRAM, "publisher", msgspec.json.encode(tasks).decode()])
        )

    async def _run(self, name: str, argv: Sequence[str]) -> AsyncProcess:
        return await self._crew.start(name, argv)

    def _account(self, role: str, run: RealRun, local_address: str | None = None) -> RunAccount:
        name = f"{role}-{run.name}"
        server, state = self._addresses[run.cell.buffer], str(self._work / name)
        return RunAccount(f"sip:{name}@{_DOMAIN}", _PASSWORD, server, state, local_address)


def _ignore(line: str) -> None:
    """Ignore a server's output."""
