"""Kill the servers of a domain and fill their disks while agents publish, receive and move, and compare what they got.

Three servers have users, two lead channels, and one of these is the directory; each is a process on a host of its own.
Agents publish through ordered and decentralised channels, and move meanwhile. One server of each kind is killed with
``kill -9`` and started again, and the disk of one of each kind is full for a moment, several times in a long run. Then
the journals of the agents are compared: nothing acknowledged is lost, nothing is repeated, all subscribers of an
ordered channel see one order, and in decentralised channels no effect comes before its cause. Meanwhile sessions of
agents walk from server to server, and channel groups of the ordered channels move from one leader to the other, both as
soon as all servers run for long enough. Subscribers wait for a server that is down, however long that takes.

As root, hosts are network namespaces and disks are small file systems in memory. Otherwise hosts are loopback
addresses, and disks are not filled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from demo.network import Network, choose
from faults.domain_cast import cast, host_names
from faults.domain_journal import Entry, HostRole, entries
from faults.domain_servers import ACCESS, DISK_BYTES, KINDS, SERVERS, DomainServers, data_of, places_in
from faults.domain_truth import Truth
from faults.kill_options import FEDERATED, INTERRUPTED, cancel_on_signals
from faults.small_disks import SmallDisk, small_disks
from faults.verdict import DOMAIN_KINDS, Verdict
from faults.victim import Died, Victim
from harness.reporting import Goal, finish, goal, progress
from wanderbus.testbed import CannotRunError

COUNTS: Final = 6
"""Numbers of a report of a process of agents."""

FAULT_EACH_S: Final = 8.0
MOVE_EACH_S: Final = 2.0
WALK_EACH_S: Final = 1.0
GROUP_MOVE_EACH_S: Final = 10.0
PROGRESS_EACH_S: Final = 2.0
DRAIN_S_MAX: Final = 180.0
QUIET_S_MAX: Final = 60.0
SETTLE_S: Final = 1.0
LOOK_EACH_S: Final = 1.0
SILENT_S_MAX: Final = 60.0
LEAST_SHARE: Final = 0.1
"""Least share of the asked rate with which a run proves something."""


class Planned(NamedTuple):
    """A fault or a move, by its kind, the host or the channel group that moves, and when it begins."""

    at_s: float
    name: str
    begin: Callable[[str], Coroutine[Any, Any, None]]


class Run:
    """One run in one directory."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        disks: Mapping[str, SmallDisk],
        agents: int,
        rate_per_s: float,
        seed: int,
        *,
        short_log: bool = False,
        is_federated: bool = False,
    ) -> None:
        self.verdict = Verdict()
        self.faults = {f"{what} {kind}": 0 for what in ("kill", "fill") for kind in KINDS if disks or what == "kill"}
        self.group_moves = 0
        self.published_s = 0.0
        """Duration of publishing."""
        self._interrupted = asyncio.Event()
        self.counts = [0] * COUNTS
        """Events acknowledged and without an answer, notifications of subscriptions that stay and of others, and moves
        and walks that have ended, of all agents."""
        self._network = network
        self._random = Random(seed)
        self._rate_per_s = rate_per_s
        places = places_in(network)
        self.hosts = cast(agents, network, places, seed, directory, rate_per_s)
        self.decentralised = self.hosts[0].decentralised
        self.roles = sorted((role for host in self.hosts for role in host.agents), key=lambda role: role.number)
        users, subjects = [role.user for role in self.roles], (self.hosts[0].ordered, self.decentralised)
        burst = functools.partial(self._tell, "burst")
        self._servers = DomainServers(
            directory,
            network,
            places,
            users,
            *subjects,
            disks,
            burst=burst,
            short_log=short_log,
            is_federated=is_federated,
        )
        self._processes = {host.name: self._process(host) for host in self.hosts}
        self._moving = asyncio.Lock()
        self._moving_group = asyncio.Lock()
        self._is_settled = False
        """True once everything that is due had time to arrive."""
        self._disturbing: list[asyncio.Task[None]] = []
        self._latest = {host.name: [0] * COUNTS for host in self.hosts}

    def _process(self, host: HostRole) -> Victim:
        argument = msgspec.json.encode(host).decode()

        def on_host(argv: Sequence[str]) -> list[str]:
            return self._network.command(host.name, argv)

        errors = host.journal.with_suffix(".stderr")
        return Victim(host.name, "faults.domain_agents", argument, errors=errors, on_host=on_host)

    async def play(self, seconds: float) -> None:
        """Publish for ``seconds`` with faults, or until :meth:`interrupt`; then let everything settle."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._begin()
                listening = [group.create_task(self._listen(name)) for name in self._processes]
                await self._disturb(seconds, group)
                await self._drain()
                self._is_settled = True
                for task in listening:
                    task.cancel()
        except* (Died, CannotRunError) as group_of_errors:
            for error in group_of_errors.exceptions:
                self.verdict.broken("integrity_errors", str(error))
        finally:
            for end in (self._servers.end, *(process.kill for process in self._processes.values())):
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

    async def _begin(self) -> None:
        """Start all processes; all agents have subscribed before the first event is published."""
        await self._servers.start()
        for process in self._processes.values():
            await process.start()
        for process in self._processes.values():
            await process.ready()

    async def _listen(self, name: str) -> None:
        """Keep the latest counts of a process of agents."""
        while True:
            self._latest[name] = [int(word) for word in (await self._processes[name].line(SILENT_S_MAX)).split()]
            self.counts = [sum(each) for each in zip(*self._latest.values(), strict=True)]

    async def _disturb(self, seconds: float, group: asyncio.TaskGroup) -> None:
        """Let agents publish, and begin each fault and each move at its time."""
        began = time.monotonic()
        self._tell("go")
        try:
            for each in self._plan(seconds):
                if await self._interrupted_before(began + each.at_s):
                    break
                self._disturbing.append(group.create_task(each.begin(each.name)))
            await self._interrupted_before(began + seconds)
        finally:
            self._tell("stop")
            self.published_s = time.monotonic() - began

    async def _interrupted_before(self, end: float) -> bool:
        """Wait until monotonic second ``end``; return True, and at once, if this is interrupted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(end - time.monotonic()):
                await self._interrupted.wait()
        return self.is_interrupted

    def _plan(self, seconds: float) -> list[Planned]:
        """Return what happens when: each kind of fault at least once, in a random order, moves and moves of groups."""
        count = max(len(self.faults), round(seconds / FAULT_EACH_S))
        names: list[str] = []
        while len(names) < count:
            names += self._random.sample(list(self.faults), len(self.faults))
        plan = []
        for place, name in enumerate(names[:count]):
            at_s = seconds * (0.05 + 0.85 * (place + self._random.random()) / count)
            plan.append(Planned(at_s, name, self._fault))
        for place in range(max(len(self.hosts), round(seconds / MOVE_EACH_S))):
            host = self.hosts[place % len(self.hosts)]
            plan.append(Planned(seconds * self._random.uniform(0.05, 0.95), host.name, self._move))
        for place in range(max(len(self.hosts), round(seconds / WALK_EACH_S))):
            host = self.hosts[place % len(self.hosts)]
            plan.append(Planned(seconds * self._random.uniform(0.05, 0.95), host.name, self._walk))
        groups = sorted(self._servers.leaders)
        for _ in range(max(1, round(seconds / GROUP_MOVE_EACH_S))):
            group = str(self._random.choice(groups))
            plan.append(Planned(seconds * self._random.uniform(0.05, 0.95), group, self._move_group))
        return sorted(plan, key=lambda each: each.at_s)

    async def _fault(self, name: str) -> None:
        what, kind = name.split()
        server = self._random.choice(KINDS[kind])
        if what == "kill":
            await self._servers.kill(server, self._random)
        else:
            await self._servers.fill(server, self._random)
        self.faults[name] += 1

    async def _move(self, host: str) -> None:
        async with self._moving:
            address = await asyncio.to_thread(self._network.move, host)
            if self._network.needs_order:
                self._processes[host].tell(f"move {address}")

    async def _walk(self, host: str) -> None:
        self._processes[host].tell(f"walk {self._random.choice(ACCESS)}")

    async def _move_group(self, group: str) -> None:
        async with self._moving_group:
            await self._servers.move_group(int(group))
        self.group_moves += 1

    def _tell(self, word: str) -> None:
        for process in self._processes.values():
            process.tell(word)

    async def _drain(self) -> None:
        """Wait until every publish is answered and all that is due has arrived, or nothing arrives any more."""
        if self._disturbing:
            await asyncio.wait(self._disturbing)
        await self._quiet(lambda: self.counts[1] == 0)
        await self._quiet(self._has_everything)
        await asyncio.sleep(SETTLE_S)

    def _has_everything(self) -> bool:
        return not self.truth(Verdict()).missing

    async def _quiet(self, is_done: Callable[[], bool]) -> None:
        """Wait until ``is_done``, but not longer than something still happens."""
        began = moved = time.monotonic()
        before = list[int]()
        while time.monotonic() < min(began + DRAIN_S_MAX, moved + QUIET_S_MAX):
            await asyncio.sleep(LOOK_EACH_S)  # the counts are half as old
            if self.counts != before:
                before, moved = self.counts, time.monotonic()
            elif is_done():
                return

    def truth(self, verdict: Verdict) -> Truth:
        """Return what the journals say; differences go to ``verdict`` when it is checked."""
        journals: list[list[Entry]] = [[] for _ in self.roles]
        for host in self.hosts:
            for entry in entries(host.journal):
                journals[entry.agent].append(entry)
        return Truth(self.roles, journals, frozenset(self.decentralised), verdict)

    def results(self) -> dict[str, Any]:
        """Compare what the agents got with what was due; return the figures of the report."""
        truth = self.truth(self.verdict)
        truth.check(is_settled=self._is_settled)
        seconds = self.published_s or math.inf
        events = len(truth.acknowledged)
        broken: dict[str, Any] = {kind: self.verdict.counts[kind] for kind in DOMAIN_KINDS}
        figures = broken | {
            "events": events,
            "deliveries": truth.deliveries,
            "subscriptions": truth.subscriptions,
            "causal_pairs": truth.causal_pairs,
            "refused": len(truth.refused),
            "moves": self.counts[4],
            "walks": self.counts[5],
            "group_moves": self.group_moves,
            "faults": self.faults,
            "published_s": round(self.published_s, 1),
            "rate_asked_per_s": self._rate_per_s,
            "rate_per_s": round(events / seconds, 1),
            "deliveries_per_s": round(truth.deliveries / seconds, 1),
        }
        return {**figures, "too_little": self._lacking(figures)}

    def _lacking(self, figures: Mapping[str, Any]) -> list[str]:
        """Return why the figures prove nothing."""
        found = [f"no {name}" for name, count in self.faults.items() if not count]
        found += [f"no {name}" for name in ("causal_pairs", "moves", "walks", "group_moves") if not figures[name]]
        if (rate_per_s := figures["rate_per_s"]) < (least := LEAST_SHARE * self._rate_per_s):
            found.append(f"{rate_per_s} events/s, less than {least:g}")
        if figures["deliveries"] < figures["events"]:
            found.append(f"{figures['deliveries']} deliveries of {figures['events']} events")
        return found

    def goals(self) -> list[Goal]:
        """Return the goals of the report."""
        return [goal(f"domain_{kind}", self.verdict.counts[kind], "found", most=0) for kind in DOMAIN_KINDS]


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do domainkill",
        description=__doc__,
        epilog=f"Ctrl-C ends the faults, and what was published is judged: the status is {INTERRUPTED}, or 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--agents", type=int, default=200, help="number of agents (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="duration of publishing (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=500.0, help="events per second (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of agents and faults (default: a new one)")
    parser.add_argument(
        "--limit-s", type=float, default=900.0, help="publish no longer than this (default: %(default)s)"
    )
    parser.add_argument(
        "--network", choices=("auto", "netns", "loopback"), default="auto", help="network (default: %(default)s)"
    )
    parser.add_argument(
        "--short-log", action="store_true", help="short segments of the logs, removed as soon as nobody needs them"
    )
    parser.add_argument("--federated", action="store_true", help=FEDERATED)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--strict", action="store_true", help="as always: broken promises end with status 1")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _disks(directory: Path) -> Iterator[Mapping[str, SmallDisk]]:
    """Mount the disk of each server; none where that is impossible, which is reported in one line."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(small_disks([data_of(directory, name) for name in SERVERS], DISK_BYTES))
        except CannotRunError as error:
            print(f"no disk is filled: {error}", flush=True)
            made = []
        yield dict(zip(SERVERS, made, strict=False))


async def _play(run: Run, seconds: float) -> None:
    cancel_on_signals()
    playing = asyncio.create_task(run.play(seconds))
    showing = asyncio.create_task(_show_progress(run))
    try:
        await asyncio.shield(playing)
    except asyncio.CancelledError:
        run.interrupt()
        await playing
    finally:
        showing.cancel()


async def _show_progress(run: Run) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EACH_S)
        acknowledged, unanswered, taken, heard, moved, walked = run.counts
        events = f"{acknowledged} events, {unanswered} open, {taken + heard} deliveries"
        progress(f"domainkill: {events}, {moved} moves, {walked} walks, {sum(run.faults.values())} faults")


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    options = _parsed(arguments)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="wanderbus-domainkill-"))
    began = time.monotonic()
    network, why = choose(options.network, [*SERVERS, *host_names(options.agents)])
    print(why, flush=True)
    try:
        with _disks(directory) as disks:
            more_options = {"short_log": options.short_log, "is_federated": options.federated}
            run = Run(directory, network, disks, options.agents, options.rate, seed, **more_options)
            asyncio.run(_play(run, min(options.seconds, options.limit_s)))
            results = run.results()
            is_good = run.verdict.good and not results["too_little"]
            for name, disk in disks.items() if not is_good else ():
                disk.copy(directory / f"copy-{name}")
    finally:
        network.close()
    for word in [*run.verdict.words, *(f"too little to prove anything: {word}" for word in results["too_little"])]:
        print(word, file=sys.stderr)
    if is_good:
        shutil.rmtree(directory)
    else:
        print(f"what is left is in {directory}; again with: ./do domainkill --seed {seed}", file=sys.stderr)
    more = {"seed": seed, "agents": options.agents, "network": network.mode, "interrupted": run.is_interrupted}
    line = {**more, **results, "wall_s": round(time.monotonic() - began, 1)}
    print(", ".join(f"{name} {value}" for name, value in line.items()))
    status = finish("domainkill", [line], run.goals(), file=options.json, strict=options.strict)
    if run.is_interrupted and run.verdict.good:
        return status or INTERRUPTED
    return status or int(not is_good)
