"""Kill a broker at random instants while agents publish and consume, and compare what is left with what was promised.

Server and agents are processes of their own, killed with ``kill -9``: the server in every cycle, while it starts, right
after a burst, or at any time; an agent now and then, which resumes from what it had committed. The log has short
segments, which the server removes as soon as nobody needs them. A registered reader misses no record of it, and keeps
a copy. A service, which is killed too, answers the server from that copy: subscriptions that begin in the past read the
copy, then the log, then new events.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from faults.agents import DOMAIN, PASSWORD, SUBJECT, Role, lines_of
from faults.archive import Archive
from faults.kill_options import INTERRUPTED, cancel_on_signals, kill_options
from faults.reckoning import due, payloads_now, published, reckon
from faults.verdict import KINDS, SEAM_KINDS, Verdict
from faults.victim import Died, Victim
from harness.absent_domain import federation_alone
from harness.ports import free_port
from harness.reporting import Goal, finish, progress_shown
from wanderbus.errors import WanderbusError

HOW: Final = ("starting", "burst", "any")
"""Moments of a kill of the server."""

PUBLISHERS: Final = ("p1", "p2", "p3")
# Device to user and interest; two devices of one user share a session and receive the same events.
CONSUMERS: Final = {
    "c1": ("carol", "everything"),
    "c2": ("dave", "one"),
    "c3": ("erin", "some"),
    "c4": ("erin", "some"),
}
# Their subscriptions begin in the past, one after another.
HYBRIDS: Final = {"h1": ("hugo", "everything"), "h2": ("ines", "some")}
AGENT_KILLED_SHARE: Final = 0.2
SERVICE_KILLED_SHARE: Final = 0.3
SERVICE_AWAY_S_MAX: Final = 1.0
LIVES_S_MAX: Final = 0.9
AFTER_BURST_S_MAX: Final = 0.08
DRAIN_S_MAX: Final = 60.0
QUIET_S_MAX: Final = 10.0
READ_S_MAX: Final = 0.6
SETTLE_S: Final = 1.0
END_S_MAX: Final = 60.0


class Run:
    """One run in one directory."""

    command = "crash"
    """Name of the command."""
    settings = "log_keep_bytes = 0\n"
    """Settings of the server, as a file."""
    consuming = CONSUMERS | HYBRIDS
    kinds: Sequence[str] = (*HOW, "agents", "service")
    """Kinds of kills."""
    drain_s_max, quiet_s_max = DRAIN_S_MAX, QUIET_S_MAX

    def __init__(self, directory: Path, random: Random, *, is_federated: bool = False) -> None:
        self.verdict = Verdict()
        self.kills = dict.fromkeys(self.kinds, 0)
        self.done = 0
        """Number of cycles that have ended."""
        self.is_interrupted = False
        self._is_settled = False
        """True once consumers had the time to take what they expect."""
        self.data = directory / "data"
        self._random = random
        port = free_port()
        users = directory / "users"
        names = {*PUBLISHERS, *(user for user, _ in self.consuming.values())}
        users.touch(0o600)
        users.write_text("".join(f"{name}:{PASSWORD}\n" for name in sorted(names)))
        settings = directory / "server.toml"
        settings.write_text(self.settings)
        self.archive = Archive(self.data / "log", directory / "archive")
        self.data.mkdir(0o700)
        self._pieces = directory / "service.journal"
        options = {"--config": settings, "--port": port, "--data-dir": self.data, "--users": users, "--domain": DOMAIN}
        if is_federated:
            gateway = ("127.0.0.1", free_port())
            options["--federation"] = federation_alone(directory, DOMAIN, {"g1": gateway}, [SUBJECT])
            options["--federation-gateway"] = "g1"
        arguments = [str(word) for option in options.items() for word in option]
        self._server = Victim("the server", "faults.short_log", "up", *arguments, errors=directory / "server.stderr")
        places = map(str, (self.data, directory / "archive", self._pieces))
        errors = directory / "service.stderr"
        self._service = Victim("the service", "faults.archive_service", *places, errors=errors)
        self._returning: asyncio.Task[None] | None = None
        place = f"127.0.0.1:{port}"
        self.publishers = [Role(name, name, str(directory), place) for name in PUBLISHERS]
        self.consumers = [
            Role(user, name, str(directory), place, what, is_hybrid=name in HYBRIDS)
            for name, (user, what) in self.consuming.items()
        ]
        self.archive.register()
        self._agents = {role.device: _agent(role) for role in (*self.consumers, *self.publishers)}

    async def play(self, cycles: int, until: float) -> None:
        """Kill ``cycles`` times, until monotonic second ``until``, or until this is cancelled."""
        reading = asyncio.create_task(self._read_log())
        try:
            await self._begin()
            while self.done < cycles and time.monotonic() < until:
                await self._cycle()
                self.done += 1
            await self._end()
            self._is_settled = True
        except asyncio.CancelledError:
            self.is_interrupted = True
        except Died as died:
            self.verdict.broken("integrity_errors", str(died))
        finally:
            reading.cancel()
            if self._returning is not None:
                self._returning.cancel()
            for victim in self._victims():
                try:
                    await victim.kill()
                except Died as died:
                    self.verdict.broken("integrity_errors", str(died))

    def _victims(self) -> list[Victim]:
        """Return all programs."""
        return [self._server, self._service, *self._agents.values()]

    def acknowledged(self) -> int:
        """Return how many events were acknowledged to publishers so far."""
        return sum(
            role.journal.read_bytes().count(b"acknowledged") for role in self.publishers if role.journal.exists()
        )

    def counts(self) -> Mapping[str, int]:
        """Compare what is left with what was promised, and return the totals.

        Those of the reckoning, and the number of pieces with events that the service has answered.
        """
        totals = reckon(
            self.verdict,
            self.data,
            self.publishers,
            self.consumers,
            self.archive.payloads,
            is_settled=self._is_settled,
        )
        return {**totals, "served": self._pieces.read_bytes().count(b"\n") if self._pieces.exists() else 0}

    def goals(self) -> list[Goal]:
        """Return the goals of the report."""
        return self.verdict.goals((*KINDS, *SEAM_KINDS))

    async def _read_log(self) -> None:
        """Read the log as a job of the pipeline does, sometimes far behind the server."""
        while True:
            await asyncio.sleep(self._random.uniform(0.05, READ_S_MAX))
            try:
                self.archive.read()
            except WanderbusError as error:
                self.verdict.broken("lost", f"a registered reader of the log: {error}")
                return

    async def _begin(self) -> None:
        """Start all processes; consumers have subscribed before the first event is published."""
        await self._service.start()
        await self._service.ready()
        await self._server.start()
        await self._server.ready()
        for roles in (self.consumers, self.publishers):
            for role in roles:
                await self._agents[role.device].start()
            for role in roles:
                await self._agents[role.device].ready()
        await self._kill_server()

    async def _cycle(self) -> None:
        """Let the server run for a while, kill it, and start it again."""
        random = self._random
        how = random.choice(HOW)
        if how == "starting":
            # The server has just been started: its files are opened in the second half of its start.
            await asyncio.sleep(self._server.ready_s * random.uniform(0.5, 1.2))
        else:
            await self._server.ready()
            if random.random() < AGENT_KILLED_SHARE:
                await self._kill_agent()
            if random.random() < SERVICE_KILLED_SHARE:
                await self._kill_service()
            await asyncio.sleep(random.uniform(0, LIVES_S_MAX))
            if how == "burst":
                for role in self.publishers:
                    self._agents[role.device].tell("burst")
                await asyncio.sleep(random.uniform(0, AFTER_BURST_S_MAX))
        self.kills[how] += 1
        await self._kill_server()

    async def _kill_server(self) -> None:
        await self._server.kill()
        await self._server.start()

    async def _kill_agent(self) -> None:
        self.kills["agents"] += 1
        agent = self._agents[self._random.choice(sorted(self._agents))]
        await agent.kill()
        await agent.start()

    async def _kill_service(self) -> None:
        """Kill the service; it returns a little later, whatever happens to the server meanwhile."""
        if self._returning is not None:
            await self._returning
        self.kills["service"] += 1
        await self._service.kill()
        self._returning = asyncio.create_task(self._return_service(self._random.uniform(0, SERVICE_AWAY_S_MAX)))

    async def _return_service(self, away_s: float) -> None:
        await asyncio.sleep(away_s)
        await self._service.start()
        await self._service.ready()

    async def _end(self) -> None:
        """Let everything settle: publishers have their acknowledgements, consumers all expected events."""
        await self._server.ready()
        await self._drain()

    async def _drain(self) -> None:
        """Let publishers end, and consumers take what they expect."""
        if self._returning is not None:
            await self._returning
        await asyncio.gather(*(self._agents[role.device].end(END_S_MAX) for role in self.publishers))
        events = published(self._payloads())
        wanted = [len(due(role, events)) for role in self.consumers]
        began = moved = time.monotonic()
        taken = self._taken()
        while time.monotonic() < min(began + self.drain_s_max, moved + self.quiet_s_max):
            if all(have >= want for have, want in zip(taken, wanted, strict=True)):
                await asyncio.sleep(SETTLE_S)
                break
            await asyncio.sleep(0.1)
            if (now := self._taken()) != taken:
                taken, moved = now, time.monotonic()

    def _payloads(self) -> list[bytes]:
        """Return every complete record, those that are removed included."""
        payloads = list(self.archive.payloads)
        return payloads + payloads_now(self.data / "log", len(payloads))

    def _taken(self) -> list[int]:
        return [len(lines_of(role.journal)) for role in self.consumers]


def _agent(role: Role) -> Victim:
    argument = msgspec.json.encode(role).decode()
    return Victim(role.device, "faults.agents", argument, errors=role.journal.with_suffix(".stderr"))


def conduct(kind: type[Run], options: argparse.Namespace) -> int:
    """Run the cycles of ``options``, and report what was found, also if the user interrupts; return the exit status."""
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix=f"wanderbus-{kind.command}-"))
    began = time.monotonic()
    run = kind(directory, Random(seed), is_federated=options.federated)
    asyncio.run(_play(run, options.cycles, began + options.limit_s))
    counts = run.counts()
    wall_s = round(time.monotonic() - began, 1)
    interrupted = "interrupted: " if run.is_interrupted else ""
    print(f"{interrupted}{run.done} of {options.cycles} cycles, {counts}, killed {run.kills}, {wall_s} s")
    again = f"--seed {seed}{' --federated' * options.federated}"
    for word in run.verdict.words:
        print(word, file=sys.stderr)
    if run.verdict.good:
        shutil.rmtree(directory)
    else:
        print(f"what is left is in {directory}; again with: ./do {kind.command} {again}", file=sys.stderr)
    cycles = {"cycles": run.done, "cycles_asked": options.cycles, "interrupted": run.is_interrupted}
    results = [{"seed": seed, **cycles, **counts, "kills": run.kills, "wall_s": wall_s}]
    status = finish(kind.command, results, run.goals(), file=options.json, strict=options.strict)
    if run.is_interrupted and run.verdict.good:
        return status or INTERRUPTED
    return status or int(not run.verdict.good or run.done < options.cycles)


async def _play(run: Run, cycles: int, until: float) -> None:
    cancel_on_signals()
    words = f"of {cycles} cycles"
    async with progress_shown(lambda: f"{run.command}: {run.done} {words}, {run.acknowledged()} events acknowledged"):
        await run.play(cycles, until)


def main(arguments: list[str] | None = None) -> int:
    """Run the cycles of the command line; return the exit status."""
    options = kill_options(
        arguments,
        Run.command,
        __doc__,
        victim="server",
        cycles=100,
        limit_s=900.0,
        failures="broken promises",
        may_be_federated=True,
    )
    return conduct(Run, options)
