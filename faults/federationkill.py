"""Kill servers of three domains and cut the links between these, while agents publish and receive, and compare.

The domains share all types with each other. Each has two servers, which both are gateways; the first one has the links.
Servers are killed with ``kill -9`` and started again: the gateway with the links, the other one, or both. Two domains
are cut apart for a while, in both directions or in one, and once more while a gateway is killed. One fault follows the
other. Then the journals of the agents are compared, and for loops the logs of the servers: nothing acknowledged is lost
or repeated in any domain, what a server has accepted comes in that order everywhere, and no event comes by way of a
third domain or back to its own.

``healed_s`` is the longest time from the end of a cut until the first event comes again, of both directions: what is
behind it follows as fast as the servers are. ``caught_up_s`` is the longest time until all has come that was published
during a cut, which depends on how long that was.

As root, domains are network namespaces with a router between them. Otherwise they are loopback addresses, and nothing
is cut.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from faults.federation_journal import DomainRole, PublisherRole, ReaderRole, Wanted, entries
from faults.federation_servers import DOMAINS, SERVERS, FederatedServers
from faults.federation_truth import FederationTruth
from faults.kill_options import INTERRUPTED, cancel_on_signals
from faults.verdict import FEDERATION_KINDS, Verdict
from faults.victim import Died, Victim
from harness.domain_network import DomainNetwork, open_domains
from harness.reporting import Goal, finish, goal, progress
from wanderbus.testbed import CannotRunError

KILLS: Final = ("kill gateway", "kill other", "kill both")
CUTS: Final = ("cut", "cut one way", "cut and kill")
SUBJECTS: Final = 6
WANTS: Final = ("everything", "everything", "one", "some")
"""Interests of a subscriber, each in another subject."""

COUNTS: Final = 4
"""Numbers of a report of a process of agents."""

DOWN_S_MAX: Final = 6.0
"""Longest time that a server is down: after three seconds another gateway goes on."""

CUT_S: Final = (3.0, 7.0)
"""Duration of a cut in a short run: a link fails after three to five seconds."""

CUT_S_MAX: Final = 60.0
CUT_SHARE_MAX: Final = 0.15
"""Share of the time of publishing that a cut may last in a long run."""

TURN_S: Final = 4.0
"""Time after which a gateway that is back has its turn."""

PAUSE_S: Final = (1.0, 3.0)
SEEN_S_MAX: Final = 60.0
HEALED_S_MAX: Final = 5.0
PROGRESS_EACH_S: Final = 2.0
DRAIN_S_MAX: Final = 900.0
QUIET_S_MAX: Final = 30.0
LOOK_EACH_S: Final = 1.0
SETTLE_S: Final = 2.0
SILENT_S_MAX: Final = 60.0
END_S_MAX: Final = 20.0
LEAST_SHARE: Final = 0.1
"""Least share of the asked rate with which a run proves something."""


class Run:
    """One run in one directory."""

    def __init__(
        self,
        directory: Path,
        network: DomainNetwork,
        rate_per_s: float,
        seed: int,
        *,
        events_max: int = 0,
        has_rendezvous: bool = False,
    ) -> None:
        self.verdict = Verdict()
        self.faults = dict.fromkeys(KILLS if network.mode == "loopback" else (*KILLS, *CUTS), 0)
        self.published_s = 0.0
        """Duration of publishing."""
        self.counts = [0] * COUNTS
        """Events acknowledged and without an answer, notifications, and streams of which something has come."""
        self._interrupted = asyncio.Event()
        self._network = network
        self._random = Random(seed)
        self._rate_per_s = rate_per_s
        self._events_max = events_max
        self._subjects = tuple(f"Type{number}" for number in range(SUBJECTS))
        users = {domain: [f"{kind}{each}" for kind in "pr" for each in _numbers(place)] for place, domain in _placed()}
        burst = functools.partial(self._tell, "burst")
        self.servers = FederatedServers(
            directory, network, self._subjects, users, burst=burst, has_rendezvous=has_rendezvous
        )
        self.roles = [self._role(directory, place, domain) for place, domain in _placed()]
        self._processes = {role.name: self._process(role) for role in self.roles}
        self._latest = {role.name: [0] * COUNTS for role in self.roles}
        self._is_settled = False
        """True once everything that is due had time to arrive."""

    def _role(self, directory: Path, place: int, domain: str) -> DomainRole:
        addresses = [f"{each.host}:{each.sip_port}" for each in self.servers.places[domain].values()]
        publishers = [PublisherRole(each, address) for each, address in zip(_numbers(place), addresses, strict=True)]
        readers = [
            ReaderRole(
                each,
                address,
                tuple(map(Wanted, self._random.sample(range(SUBJECTS), len(WANTS)), WANTS)),
            )
            for each, address in zip(_numbers(place), addresses, strict=True)
        ]
        return DomainRole(
            domain,
            place,
            str(directory),
            tuple(publishers),
            tuple(readers),
            self._subjects,
            self._rate_per_s / len(DOMAINS),
            self._random.getrandbits(32),
        )

    def _process(self, role: DomainRole) -> Victim:
        def on_host(argv: Sequence[str]) -> list[str]:
            return self._network.command(role.number, argv)

        errors = role.journal.with_suffix(".stderr")
        argument = msgspec.json.encode(role).decode()
        return Victim(f"agents of {role.name}", "faults.federation_agents", argument, errors=errors, on_host=on_host)

    async def play(self, seconds: float) -> None:
        """Publish for ``seconds`` with faults, or until :meth:`interrupt`; then let everything settle."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._begin()
                listening = [group.create_task(self._listen(name)) for name in self._processes]
                await self._until_seen()
                await self._disturb(seconds)
                await self._drain()
                self._is_settled = True
                for task in listening:
                    task.cancel()
                for process in self._processes.values():
                    await process.end(END_S_MAX)
        except* (Died, CannotRunError) as group_of_errors:
            for error in group_of_errors.exceptions:
                self.verdict.broken("integrity_errors", str(error))
        finally:
            for end in (self.servers.end, *(process.kill for process in self._processes.values())):
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
        await self.servers.start()
        for process in self._processes.values():
            await process.start()
        for process in self._processes.values():
            await process.ready()

    async def _listen(self, name: str) -> None:
        """Keep the latest counts of a process of agents."""
        while True:
            self._latest[name] = [int(word) for word in (await self._processes[name].line(SILENT_S_MAX)).split()]
            self.counts = [sum(each) for each in zip(*self._latest.values(), strict=True)]

    async def _until_seen(self) -> None:
        """Wait until each subscription has got something of each publisher of its subject: all domains are linked."""
        publishers = sum(len(role.publishers) for role in self.roles)
        wanted = publishers * sum(len(reader.wants) for role in self.roles for reader in role.readers)
        until = time.monotonic() + SEEN_S_MAX
        while self.counts[3] < wanted and not self.is_interrupted:
            if time.monotonic() > until:
                words = f"{self.counts[3]} of {wanted} streams have come"
                raise Died(f"the domains have not shared everything in {SEEN_S_MAX:g} s: {words}")
            await asyncio.sleep(0.1)

    async def _disturb(self, seconds: float) -> None:
        """Let agents publish, and begin one fault after the other; each kind has its turn."""
        began = time.monotonic()
        self._tell("go")
        waiting = list[str]()
        try:
            while not self._is_over(time.monotonic() - began, seconds):
                waiting = waiting or self._random.sample(list(self.faults), len(self.faults))
                await self._fault(name := waiting.pop(), seconds)
                self.faults[name] += 1
                await self._interrupted_in(self._random.uniform(*PAUSE_S))
        finally:
            self._tell("stop")
            self.published_s = time.monotonic() - began

    def _is_over(self, passed_s: float, seconds: float) -> bool:
        if self.is_interrupted or (self._events_max and self.counts[0] >= self._events_max):
            return True
        return passed_s >= seconds and all(self.faults.values())

    async def _interrupted_in(self, seconds: float) -> None:
        """Wait for some time, or until this is interrupted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._interrupted.wait()

    async def _fault(self, name: str, seconds: float) -> None:
        random = self._random
        one, other = random.sample(range(len(DOMAINS)), 2)
        down_s = random.uniform(0.0, DOWN_S_MAX)
        shortest_s, longest_s = CUT_S
        cut_s = random.uniform(shortest_s, max(longest_s, min(CUT_S_MAX, CUT_SHARE_MAX * seconds)))
        both_ways = [(one, other), (other, one)]
        killed = {"kill gateway": SERVERS[:1], "kill other": SERVERS[1:], "kill both": SERVERS}
        match name:
            case "cut":
                await self.servers.cut(both_ways, asyncio.sleep(cut_s), random)
            case "cut one way":
                await self.servers.cut([(one, other)], asyncio.sleep(cut_s), random)
            case "cut and kill":
                await self.servers.cut(both_ways, self._kill_and_wait(DOMAINS[one], down_s), random)
            case _:
                await self.servers.kill(DOMAINS[one], killed[name], down_s, random)

    async def _kill_and_wait(self, domain: str, down_s: float) -> None:
        """Kill the gateway of a domain, and return once it has its turn again: nothing but the cut delays events."""
        await self.servers.kill(domain, SERVERS[:1], down_s, self._random)
        await asyncio.sleep(TURN_S)

    def _tell(self, word: str) -> None:
        for process in self._processes.values():
            process.tell(word)

    async def _drain(self) -> None:
        """Wait until every publish is answered, and all that is due has arrived or nothing arrives any more."""
        until = time.monotonic() + DRAIN_S_MAX
        await self._quiet(lambda: self.counts[1] == 0, until)
        if self.counts[1]:
            self.verdict.broken("integrity_errors", f"{self.counts[1]} publishes were never answered", self.counts[1])
        await self._quiet(lambda: not self.truth(Verdict()).missing, until)
        await asyncio.sleep(SETTLE_S)

    async def _quiet(self, is_done: Any, until: float) -> None:
        """Wait until ``is_done``, but not longer than something still happens."""
        moved, before = time.monotonic(), list[int]()
        while time.monotonic() < min(until, moved + QUIET_S_MAX):
            await asyncio.sleep(LOOK_EACH_S)  # the counts are half as old
            if self.counts != before:
                before, moved = self.counts, time.monotonic()
            elif is_done():
                return

    def truth(self, verdict: Verdict) -> FederationTruth:
        """Return what the journals say; differences go to ``verdict`` when it is checked."""
        return FederationTruth(self.roles, [entries(role.journal) for role in self.roles], verdict)

    def results(self) -> dict[str, Any]:
        """Compare what the agents got with what was due; return the figures of the report."""
        truth = self.truth(self.verdict)
        truth.check(is_settled=self._is_settled)
        logs = {domain: [self.servers.data(domain, server) / "log" for server in SERVERS] for domain in DOMAINS}
        crossed = truth.check_logs(logs)
        seconds = self.published_s or math.inf
        broken: dict[str, Any] = {kind: self.verdict.counts[kind] for kind in FEDERATION_KINDS}
        figures = broken | {
            "healed_s": round(max(map(truth.healed_s, self.servers.cuts), default=math.nan), 2),
            "caught_up_s": round(max(map(truth.caught_up_s, self.servers.cuts), default=math.nan), 2),
            "longest_cut_s": round(max(((e.healed_ns - e.began_ns) / 1e9 for e in self.servers.cuts), default=0), 1),
            "events": truth.events,
            "crossed": crossed,
            "deliveries": truth.deliveries,
            "refused": truth.refused,
            "faults": self.faults,
            "published_s": round(self.published_s, 1),
            "rate_asked_per_s": self._rate_per_s,
            "rate_per_s": round(truth.events / seconds, 1),
        }
        return {**figures, "too_little": self._lacking(figures)}

    def _lacking(self, figures: Mapping[str, Any]) -> list[str]:
        """Return why the figures prove nothing."""
        found = [f"no {name}" for name, count in self.faults.items() if not count]
        if (rate_per_s := figures["rate_per_s"]) < (least := LEAST_SHARE * self._rate_per_s):
            found.append(f"{rate_per_s} events/s, less than {least:g}")
        if figures["crossed"] < figures["events"]:
            found.append(f"{figures['crossed']} events in other domains, of {figures['events']}")
        return found

    def goals(self, results: Mapping[str, Any]) -> list[Goal]:
        """Return the goals of the report."""
        found = [goal(f"federation_{kind}", self.verdict.counts[kind], "found", most=0) for kind in FEDERATION_KINDS]
        return [*found, goal("federation_healed_s", results["healed_s"], "s", most=HEALED_S_MAX)]


def _placed() -> list[tuple[int, str]]:
    return list(enumerate(DOMAINS))


def _numbers(place: int) -> range:
    """Return the numbers of the publishers, and those of the readers, of a domain: one of each at each server."""
    return range(place * len(SERVERS), (place + 1) * len(SERVERS))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do federationkill",
        description=__doc__,
        epilog=f"Ctrl-C ends the faults, and what was published is judged: the status is {INTERRUPTED}, or 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="duration of publishing (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=300.0, help="events per second (default: %(default)s)")
    parser.add_argument("--events", type=int, default=0, metavar="N", help="publish no longer than until N events")
    parser.add_argument("--rendezvous", action="store_true", help="every second type has the method rendezvous")
    parser.add_argument("--seed", type=int, help="seed of agents and faults (default: a new one)")
    parser.add_argument(
        "--limit-s", type=float, default=900.0, help="publish no longer than this (default: %(default)s)"
    )
    parser.add_argument(
        "--network", choices=("auto", "netns", "loopback"), default="auto", help="network (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 too if healing takes too long")
    return parser.parse_args(arguments)


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
        acknowledged, unanswered, taken, _ = run.counts
        events = f"{acknowledged} events, {unanswered} open, {taken} deliveries"
        progress(f"federationkill: {events}, {sum(run.faults.values())} faults")


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    options = _parsed(arguments)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="wanderbus-federationkill-"))
    began = time.monotonic()
    network, why = open_domains(options.network, len(DOMAINS), len(SERVERS))
    print(why, flush=True)
    try:
        more_options = {"events_max": options.events, "has_rendezvous": options.rendezvous}
        run = Run(directory, network, options.rate, seed, **more_options)
        asyncio.run(_play(run, min(options.seconds, options.limit_s)))
        results = run.results()
        is_good = run.verdict.good and not results["too_little"]
    finally:
        network.close()
    for word in [*run.verdict.words, *(f"too little to prove anything: {word}" for word in results["too_little"])]:
        print(word, file=sys.stderr)
    if is_good:
        shutil.rmtree(directory)
    else:
        print(f"what is left is in {directory}; again with: ./do federationkill --seed {seed}", file=sys.stderr)
    more = {"seed": seed, "network": network.mode, "interrupted": run.is_interrupted}
    line = {**more, **results, "wall_s": round(time.monotonic() - began, 1)}
    print(", ".join(f"{name} {value}" for name, value in line.items()))
    status = finish("federationkill", [line], run.goals(results), file=options.json, strict=options.strict)
    if run.is_interrupted and run.verdict.good:
        return status or INTERRUPTED
    return status or int(not is_good)
