"""Kill servers of three domains and cut the links between these, while agents publish and receive, and compare.

The domains share all types with each other. Each has two servers, which both are gateways; the first one has the links.
Servers are killed with ``kill -9`` and started again: the gateway with the links, the other one, or both. Two domains
are cut apart for a while, in both directions or in one, and once more while a gateway is killed: events wait, or, with
the method tree, pass through the third domain. One fault follows the other. Then the journals of the agents are
compared, and for loops the logs of the servers: nothing acknowledged is lost or repeated in any domain, what a server
has accepted comes in that order everywhere, and no event is published in another domain but by its own.

``healed_s`` is the longest time from the end of a cut until the first event comes again, of both directions: what is
behind it follows as fast as the servers are. ``caught_up_s`` is the longest time until all has come that was published
during a cut, which depends on how long that was.

Publishers have a window of unanswered events, and few events follow while too much is due that has not come. So with
a high ``--rate``, ``--events`` are published as fast as the servers are, and queues stay short however long this takes.

As root, domains are network namespaces with a router between them. Otherwise they are loopback addresses, and nothing
is cut.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from faults.agents import INTERESTS
from faults.agents_run import AgentsRun, conclude, play
from faults.federation_journal import DomainRole, PublisherRole, ReaderRole, Wanted, entries
from faults.federation_servers import DOMAINS, SERVERS, FederatedServers
from faults.federation_truth import FederationTruth
from faults.kill_options import INTERRUPTED
from faults.verdict import FEDERATION_KINDS, Verdict
from faults.victim import Died, Victim
from harness.domain_network import DomainNetwork, open_domains
from harness.reporting import Goal, goal
from wanderbus.federation.routing_messages import METHODS, Method

KILLS: Final = ("kill gateway", "kill other", "kill both")
CUTS: Final = ("cut", "cut one way", "cut and kill")
SUBJECTS: Final = 6
WANTS: Final = ("everything", "everything", "one", "some")
"""Interests of a subscriber, each in another subject."""

COUNTS: Final = 4
"""Events acknowledged and without an answer, notifications, and streams of which something has come."""

DOWN_S_MAX: Final = 6.0
"""Longest time that a server is down: after three seconds another gateway goes on."""

CUT_S: Final = (3.0, 7.0)
"""Duration of a cut in a short run: a link fails after three to five seconds."""

CUT_S_MAX: Final = 60.0
CUT_SHARE_MAX: Final = 0.15
"""Share of the time of publishing that a cut may last in a long run."""

TURN_S: Final = 4.0
"""Time after which a gateway that is back has its turn."""

PAUSE_S_MAX: Final = 3.0
PAUSE_SHARE_MIN: Final = 1 / 3
"""Shortest pause between two faults, as a share of the longest one."""

AHEAD_MAX: Final = 60_000
"""Notifications that are due and have not come, from which on few events follow: queues stay short however long the
run is. Fewer wait for the end of a cut, unless thousands of events are published a second."""

LOOK_AHEAD_EACH_S: Final = 0.5
SEEN_S_MAX: Final = 60.0
HEALED_S_MAX: Final = 5.0
DRAIN_S_MAX: Final = 900.0
SETTLE_S: Final = 2.0


class Run(AgentsRun):
    """One run in one directory."""

    quiet_s_max = 30.0
    end_s_max = 20.0

    def __init__(
        self,
        directory: Path,
        network: DomainNetwork,
        rate_per_s: float,
        seed: int,
        *,
        events_max: int = 0,
        pause_s_max: float = PAUSE_S_MAX,
        method: Method = "multicast",
    ) -> None:
        super().__init__(KILLS if network.mode == "loopback" else (*KILLS, *CUTS), COUNTS, rate_per_s, seed)
        self._network = network
        self._events_max = events_max
        self._pause_s = (PAUSE_SHARE_MIN * pause_s_max, pause_s_max)
        self._subjects = tuple(f"Type{number}" for number in range(SUBJECTS))
        users = {domain: [f"{kind}{each}" for kind in "pr" for each in _numbers(place)] for place, domain in _placed()}
        burst = functools.partial(self._tell, "burst")
        self.servers = FederatedServers(directory, network, self._subjects, users, burst=burst, method=method)
        self.roles = [self._role(directory, place, domain) for place, domain in _placed()]
        self._due_each = sum(map(_share, (want for role in self.roles for each in role.readers for want in each.wants)))
        """Notifications that are due for an event, in the mean."""
        self._use(self.servers, {role.name: self._process(role) for role in self.roles})

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

    async def _publish(self, seconds: float, group: asyncio.TaskGroup) -> None:
        await self._until_seen()
        pacing = group.create_task(self._pace())
        try:
            await self._disturb(seconds)
        finally:
            pacing.cancel()

    async def _pace(self) -> None:
        """Let few events follow while agents are too far ahead of what comes."""
        is_held = False
        while True:
            await asyncio.sleep(LOOK_AHEAD_EACH_S)
            if self._is_ahead() is not is_held:
                is_held = not is_held
                self._tell("hold" if is_held else "resume")

    def _is_ahead(self) -> bool:
        return self._due_each * self.counts[0] - self.counts[2] > AHEAD_MAX

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
                await self._interrupted_before(time.monotonic() + self._random.uniform(*self._pause_s))
        finally:
            self._tell("stop")
            self.published_s = time.monotonic() - began

    def _is_over(self, passed_s: float, seconds: float) -> bool:
        if self.is_interrupted or (self._events_max and self.counts[0] >= self._events_max):
            return True
        return passed_s >= seconds and all(self.faults.values())

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

    async def _drain(self) -> None:
        until = time.monotonic() + DRAIN_S_MAX
        await self._quiet(lambda: self.counts[1] == 0, until)
        if self.counts[1]:
            self.verdict.broken("integrity_errors", f"{self.counts[1]} publishes were never answered", self.counts[1])
        await self._quiet(lambda: not self.truth(Verdict()).missing, until)
        await asyncio.sleep(SETTLE_S)

    def truth(self, verdict: Verdict) -> FederationTruth:
        """Return what the journals say; differences go to ``verdict`` when it is checked."""
        return FederationTruth(self.roles, [entries(role.journal) for role in self.roles], verdict)

    def results(self) -> dict[str, Any]:
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
        found = super()._lacking(figures)
        if figures["crossed"] < figures["events"]:
            found.append(f"{figures['crossed']} events in other domains, of {figures['events']}")
        return found

    def progress_words(self) -> str:
        acknowledged, unanswered, taken, _ = self.counts
        return f"{acknowledged} events, {unanswered} open, {taken} deliveries"

    def goals(self, results: Mapping[str, Any]) -> list[Goal]:
        """Return the goals of the report."""
        found = [goal(f"federation_{kind}", self.verdict.counts[kind], "found", most=0) for kind in FEDERATION_KINDS]
        return [*found, goal("federation_healed_s", results["healed_s"], "s", most=HEALED_S_MAX)]


def _placed() -> list[tuple[int, str]]:
    return list(enumerate(DOMAINS))


def _share(want: Wanted) -> float:
    """Return the share of all events that a subscription matches: its subject's, and of these one in so many."""
    numbers = range(1_000, 1_100)
    return sum(map(INTERESTS[want.interest].matches, numbers)) / len(numbers) / SUBJECTS


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
    parser.add_argument(
        "--events", type=int, default=0, metavar="N", help="publish N events, however many --seconds that takes"
    )
    parser.add_argument(
        "--pause-s", type=float, default=PAUSE_S_MAX, help="longest pause between two faults (default: %(default)s)"
    )
    parser.add_argument(
        "--method", choices=METHODS, default="multicast", help="method of every second type (default: %(default)s)"
    )
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
        more_options = {"events_max": options.events, "pause_s_max": options.pause_s, "method": options.method}
        run = Run(directory, network, options.rate, seed, **more_options)
        seconds = options.limit_s if options.events else min(options.seconds, options.limit_s)
        asyncio.run(play(run, "federationkill", seconds))
        results = run.results() | {"wall_s": round(time.monotonic() - began, 1)}
    finally:
        network.close()
    about = {"seed": seed, "network": network.mode, "interrupted": run.is_interrupted}
    return conclude("federationkill", run, results, run.goals(results), about, directory, options)
