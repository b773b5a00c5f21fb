"""Simulated histories of interest between 1 to 50 access servers and a resolution server (SPEC J-10, K-05, K-07).

Filters and advertisements come and go; links lose, delay, repeat and reorder; servers are cut off, killed and started
again, the resolution server without its tables. After a while everything is repaired, and what is left is checked.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.channels.interest.interest_set import MODES, Wanted
from wanderbus.channels.interest.messages import Kind
from wanderbus.filters import parse
from wanderbus.machine import Address
from wanderbus.simulation.domains.interest_checkers import (
    check_covered_update,
    check_minimal,
    check_nothing_left,
    check_sound,
    check_tables,
)
from wanderbus.simulation.domains.interest_hosts import (
    RESOLUTION,
    AccessHost,
    LinkDown,
    LinkedHost,
    LinkUp,
    ResolutionHost,
)
from wanderbus.simulation.host import SimulatedHost
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.scenario import Scenario

ROUGH_S: Final = 20.0
REPAIRED_S: Final = 200.0
SUBJECTS: Final = ("Flights", "Gates", None)


class InterestServer(SimulatedHost[AccessHost]):
    """An access server across its lives: its filters are durable, and usually its tables."""

    def __init__(self, name: str, ip: str) -> None:
        super().__init__(AccessHost)
        self.name = name
        self.ip = ip
        self.life = 0
        self.tables = IncomingStreams()
        self.filters: dict[Kind, dict[Hashable, Wanted]] = {"interest": {}, "advertisements": {}}
        self.waiting: dict[tuple[Kind, Hashable], int] = {}
        """Version from which a filter counts, for filters that do not yet."""

    @property
    def is_known_again(self) -> bool:
        """Return whether the server runs, and has been confirmed since its link last began."""
        return self.running and self.machine.sources["interest"].outgoing.effective >= 0

    @property
    def host(self) -> AccessHost:
        """Return the machine of the present or last life."""
        assert self.node is not None
        assert isinstance(self.node.machine, AccessHost)
        return self.node.machine

    def effective(self, kind: Kind) -> dict[Hashable, Wanted]:
        """Return the filters that count at all servers that are alive."""
        if self.running:
            for key, version in list(self.waiting.items()):
                if self.machine.sources[key[0]].outgoing.effective >= version:
                    del self.waiting[key]
        return {id: wanted for id, wanted in self.filters[kind].items() if (kind, id) not in self.waiting}


class InterestScenario(Scenario):
    """One world, set up by its seed."""

    counted: ClassVar = {
        "servers": "access servers",
        "changes": "changes of filters",
        "covered": "covered subscriptions",
        "messages": "messages",
        "checks": "checks of a table",
        "kills": "servers killed",
        "cuts": "servers cut off",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        rough = PathConditions(
            loss=draw.choice([0.0, 0.05, 0.3]),
            duplication=draw.choice([0.0, 0.1]),
            delay_max_s=draw.choice([0.01, 0.2]),
            spike=draw.choice([0.0, 0.1]),
        )
        self.network = Network(self.world, rough)
        self.mode = draw.choice(MODES)
        self.spread_mode = draw.choice(MODES)
        self.advertised = draw.random() < 0.6
        count = draw.choice([1, 2, 3, 3, 4, 5, 8]) if draw.random() < 0.97 else 50
        self.access = {
            name: InterestServer(name, f"10.0.1.{number}") for number, name in enumerate(f"a{n}" for n in range(count))
        }
        self.resolution = SimulatedHost(ResolutionHost)
        self.changes = self.covered = self.kills = self.cuts = self.checks = 0
        self._past_messages = self._lives = self._ids = 0
        self._addresses: dict[str, Address] = {}
        self._links: dict[str, int] = {}
        self._is_rough = True

    def _play(self) -> None:
        self._start_resolution()
        for server in self.access.values():
            self._start(server)
        self._act()
        self.world.run(ROUGH_S)
        self._repair()
        self._settle()

    def _check_promises(self) -> None:
        if not self.problems:
            self.problems += check_tables(self.access, self.proxies, advertised=self.advertised)
            self.problems += check_minimal(self.access, self.proxies, self.mode, self.spread_mode)
            self.check_soundness()
        for server in self.access.values():
            for kind in ("interest", "advertisements"):
                self._update(server, kind, {}, list(server.filters[kind]))
        self._settle()
        self.problems += check_nothing_left(self.access, self.proxies)
        self.problems = list(dict.fromkeys(self.problems))

    def counts(self) -> dict[str, float]:
        hosts = [self._host_of(node) for node in self._nodes() if node.alive]
        return {
            "servers": len(self.access),
            "changes": self.changes,
            "covered": self.covered,
            "messages": self._past_messages + sum(host.messages for host in hosts),
            "checks": self.checks,
            "kills": self.kills,
            "cuts": self.cuts,
        }

    @property
    def proxies(self) -> ResolutionHost:
        """Return the machine of the resolution server."""
        return self.resolution.machine

    def check_soundness(self) -> None:
        """Check that no table lacks an event that it must let through."""
        checked, problems = check_sound(self.access, self.world.random, advertised=self.advertised)
        self.checks += checked
        self.problems += [f"{self.world.now:.3f} s: {each}" for each in problems]

    def _act(self) -> None:
        """Do something now, and again in a while, until the world is repaired."""
        draw = self.world.random
        if not self._is_rough:
            return
        server = draw.choice(list(self.access.values()))
        what = draw.random()
        if what < 0.72:
            if server.running:
                self._change_filters(server)
        elif what < 0.75:
            self._kill(server)
        elif what < 0.77:
            self._kill_resolution()
        elif what < 0.80:
            self._cut(server)
        else:
            self.check_soundness()
        self.world.after(draw.expovariate(8.0), self._act)

    def _change_filters(self, server: InterestServer) -> None:
        draw = self.world.random
        kind: Kind = "advertisements" if draw.random() < 0.2 else "interest"
        there = list(server.filters[kind])
        if there and draw.random() < 0.4:
            self._update(server, kind, {}, draw.sample(there, min(len(there), draw.choice([1, 1, 2, 8]))))
            return
        added: dict[Hashable, Wanted] = {}
        for _ in range(draw.choice([1, 1, 1, 3])):
            self._ids += 1
            id = draw.choice(there) if there and draw.random() < 0.1 else self._ids
            added[id] = draw.choice(SUBJECTS[: 2 + (draw.random() < 0.1)]), parse(self._expression(kind))
        self._update(server, kind, added, [])

    def _update(
        self, server: InterestServer, kind: Kind, added: dict[Hashable, Wanted], removed: list[Hashable]
    ) -> None:
        source = server.machine.sources[kind]
        before, version = source.interests.sent(), source.outgoing.version
        is_new = not removed and not server.filters[kind].keys() & added.keys()
        counts_from, outputs = source.update(added, removed, self.world.now)
        self.changes += 1
        if is_new:
            covered, problems = check_covered_update(before, added, source.outgoing.version - version)
            self.covered += covered
            self.problems += problems
        for id in removed:
            del server.filters[kind][id]
            server.waiting.pop((kind, id), None)
        server.filters[kind] |= added
        server.waiting |= {(kind, id): counts_from for id in added}
        server.node.perform(server.machine.translated(outputs))

    def _expression(self, kind: Kind) -> str:
        draw = self.world.random
        # Only "all" excludes a list with another value beside, and so interest in that.
        all_ = "all " if kind == "advertisements" and draw.random() < 0.7 else ""

        def test(name: str) -> str:
            low = draw.randrange(10)
            sign = draw.choice(["<", ">", "==", ">=", "!="])
            return (
                f"{all_}{name} {sign} {low}"
                if draw.random() < 0.8
                else f"({all_}{name} > {low} and {all_}{name} < {low + 4})"
            )

        names = draw.sample(["x", "y", "z"], draw.choice([1, 2, 2, 3]))
        if draw.random() < 0.03:
            return ""
        return draw.choice([" and ", " and ", " and ", " or "]).join(map(test, sorted(names)))

    # Lives and links -------------------------------------------------------------------------------------------------

    def _start(self, server: InterestServer) -> None:
        draw = self.world.random
        server.life += 1
        self._lives += 1
        if draw.random() < 0.5:
            server.tables = IncomingStreams()
        server.tables.restart()
        host = AccessHost(server.name, server.life, self.mode, server.tables, server.filters)
        server.node = self._node(server.name, host, (server.ip, 1_000 + self._lives))
        for kind, source in host.sources.items():
            server.waiting |= {key: source.outgoing.version for key in server.waiting if key[0] == kind}
        self._link_later(server)

    def _start_resolution(self) -> None:
        self._lives += 1
        host = ResolutionHost(self._lives, self.spread_mode, self.access, advertised=self.advertised)
        self.resolution.node = self._node(RESOLUTION, host, ("10.0.0.1", 1_000 + self._lives))
        for server in self.access.values():
            self._link_later(server)

    def _node(self, name: str, host: LinkedHost, address: Address) -> Node:
        self._addresses[name] = address
        return Node(name, host, {"servers": address}, self.world, self.network, lambda output: None)

    def _link_later(self, server: InterestServer) -> None:
        self._links[server.name] = number = self._links.get(server.name, 0) + 1

        def link() -> None:
            if self._links[server.name] == number and server.running and self.resolution.running:
                if self.network.is_cut(server.ip):
                    self._link_later(server)
                    return
                self.resolution.feed(LinkUp(server.name, self._addresses[server.name]))
                server.feed(LinkUp(RESOLUTION, self._addresses[RESOLUTION]))

        self.world.after(self.world.random.uniform(0.01, 0.5), link)

    def _kill(self, server: InterestServer) -> None:
        if not server.running:
            return
        self.kills += 1
        self._past_messages += server.machine.messages
        server.kill()
        self._links[server.name] = self._links.get(server.name, 0) + 1
        if self.resolution.running:
            self.resolution.feed(LinkDown(server.name, True))
        self.world.after(self.world.random.uniform(0.1, 3.0), lambda: self._start(server))

    def _kill_resolution(self) -> None:
        if not self.resolution.running:
            return
        self.kills += 1
        self._past_messages += self.proxies.messages
        self.resolution.kill()
        for server in self.access.values():
            if server.running:
                server.feed(LinkDown(RESOLUTION, True))
        self.world.after(self.world.random.uniform(0.1, 3.0), self._start_resolution)

    def _cut(self, server: InterestServer) -> None:
        if self.network.is_cut(server.ip):
            return
        self.cuts += 1
        self.network.cut(server.ip)

        def end() -> None:
            if server.running and self.resolution.running:
                server.feed(LinkDown(RESOLUTION, False))
            if self.resolution.running and server.running:
                self.resolution.feed(LinkDown(server.name, False))
            self.network.mend(server.ip)
            self._link_later(server)

        self.world.after(self.world.random.uniform(0.1, 5.0), end)

    def _nodes(self) -> list[Node]:
        return [self.resolution.node, *(server.node for server in self.access.values())]

    def _host_of(self, node: Node) -> LinkedHost:
        assert isinstance(node.machine, LinkedHost)
        return node.machine

    def _repair(self) -> None:
        self._is_rough = False
        self.network.conditions = PathConditions()

    def _settle(self) -> None:
        """Let time pass until nothing is unconfirmed; that it takes too long is a problem."""
        until = self.world.now + REPAIRED_S
        self.world.run(until)
        for node in self._nodes():
            if not node.alive:
                self.problems.append(f"{node.name} is not alive")
            elif self._host_of(node).repeat_at() is not None or node.timers.keys:
                self.problems.append(f"{node.name} still waits for confirmations")
        for server in self.access.values():
            for kind in ("interest", "advertisements"):
                if len(server.effective(kind)) < len(server.filters[kind]):
                    self.problems.append(f"{server.name}: some {kind} never counted")
