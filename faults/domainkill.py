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
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from demo.network import Network, choose
from faults.agents_run import AgentsRun, conclude, is_good, play
from faults.domain_cast import cast, host_names
from faults.domain_journal import Entry, HostRole, entries
from faults.domain_servers import ACCESS, DISK_BYTES, KINDS, SERVERS, DomainServers, data_of, places_in
from faults.domain_truth import Truth
from faults.kill_options import FEDERATED, INTERRUPTED
from faults.small_disks import SmallDisk, small_disks
from faults.verdict import DOMAIN_KINDS, Verdict
from faults.victim import Victim
from harness.reporting import Goal, goal
from wanderbus.testbed import CannotRunError

COUNTS: Final = 6
"""Events acknowledged and without an answer, notifications of subscriptions that stay and of others, and moves and
walks that have ended."""

FAULT_EACH_S: Final = 8.0
MOVE_EACH_S: Final = 2.0
WALK_EACH_S: Final = 1.0
GROUP_MOVE_EACH_S: Final = 10.0
DRAIN_S_MAX: Final = 180.0
SETTLE_S: Final = 1.0


class Planned(NamedTuple):
    """A fault or a move, by its kind, the host or the channel group that moves, and when it begins."""

    at_s: float
    name: str
    begin: Callable[[str], Coroutine[Any, Any, None]]


class Run(AgentsRun):
    """One run in one directory."""

    quiet_s_max = 60.0

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
        faults = [f"{what} {kind}" for what in ("kill", "fill") for kind in KINDS if disks or what == "kill"]
        super().__init__(faults, COUNTS, rate_per_s, seed)
        self.group_moves = 0
        self._network = network
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
        self._use(self._servers, {host.name: self._process(host) for host in self.hosts})
        self._moving = asyncio.Lock()
        self._moving_group = asyncio.Lock()
        self._disturbing: list[asyncio.Task[None]] = []

    def _process(self, host: HostRole) -> Victim:
        argument = msgspec.json.encode(host).decode()

        def on_host(argv: Sequence[str]) -> list[str]:
            return self._network.command(host.name, argv)

        errors = host.journal.with_suffix(".stderr")
        return Victim(host.name, "faults.domain_agents", argument, errors=errors, on_host=on_host)

    async def _publish(self, seconds: float, group: asyncio.TaskGroup) -> None:
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

    async def _drain(self) -> None:
        if self._disturbing:
            await asyncio.wait(self._disturbing)
        await self._quiet(lambda: self.counts[1] == 0, time.monotonic() + DRAIN_S_MAX)
        await self._quiet(lambda: not self.truth(Verdict()).missing, time.monotonic() + DRAIN_S_MAX)
        await asyncio.sleep(SETTLE_S)

    def truth(self, verdict: Verdict) -> Truth:
        """Return what the journals say; differences go to ``verdict`` when it is checked."""
        journals: list[list[Entry]] = [[] for _ in self.roles]
        for host in self.hosts:
            for entry in entries(host.journal):
                journals[entry.agent].append(entry)
        return Truth(self.roles, journals, frozenset(self.decentralised), verdict)

    def results(self) -> dict[str, Any]:
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
        found = super()._lacking(figures)
        found += [f"no {name}" for name in ("causal_pairs", "moves", "walks", "group_moves") if not figures[name]]
        if figures["deliveries"] < figures["events"]:
            found.append(f"{figures['deliveries']} deliveries of {figures['events']} events")
        return found

    def progress_words(self) -> str:
        acknowledged, unanswered, taken, heard, moved, walked = self.counts
        deliveries = f"{acknowledged} events, {unanswered} open, {taken + heard} deliveries"
        return f"{deliveries}, {moved} moves, {walked} walks"

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
            asyncio.run(play(run, "domainkill", min(options.seconds, options.limit_s)))
            results = run.results() | {"wall_s": round(time.monotonic() - began, 1)}
            for name, disk in disks.items() if not is_good(run, results) else ():
                disk.copy(directory / f"copy-{name}")
    finally:
        network.close()
    about = {"seed": seed, "agents": options.agents, "network": network.mode, "interrupted": run.is_interrupted}
    return conclude("domainkill", run, results, run.goals(), about, directory, options)
