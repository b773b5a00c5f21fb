"""Simulated domain of 2 to 50 servers that send filtered events to each other, in causal order (SPEC K-04, K-06).

Servers answer events with events, crash with torn and lost writes, lose their disks, are divided and joined, enter and
leave; sessions move between them. Full vector clocks outside check that nothing is delivered before its cause, nothing
twice, nothing out of its publisher's order, and that nothing is lost once all is quiet.
"""

from __future__ import annotations

from typing import ClassVar, Final

from wanderbus.channels.causal.header import Origin
from wanderbus.channels.causal.interface import (
    CausalLimits,
    Deliver,
    ExportPast,
    GapFound,
    ImportPast,
    PastExported,
    PastReached,
    PublishTo,
    RemoveServer,
)
from wanderbus.machine import Output
from wanderbus.simulation.domains.causal_checkers import CausalTruth
from wanderbus.simulation.domains.causal_node import CausalLinks, CausalNode
from wanderbus.simulation.scenario import Scenario

ACTIVE_S: Final = 12.0
SETTLE_S: Final = 60.0
EVENTS_MAX: Final = 2_000
"""Number of events, divided by that of servers, after which nobody replies any more."""


class CausalScenario(Scenario):
    """A world with a domain of servers, set up by the seed."""

    counted: ClassVar = {
        "events": "events",
        "deliveries": "deliveries",
        "replies": "replies",
        "crashes": "server crashes",
        "wipes": "of them with the disk",
        "partitions": "partitions",
        "joins": "servers joined",
        "leaves": "left",
        "moves": "sessions moved",
        "gaps": "gaps",
        "causal_violations": "causal violations",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self._truth, self.lost = CausalTruth((), ()), 0
        self.replies = self.crashes = self.wipes = self.partitions = self.moves = self.joins = self.leaves = 0
        self.gaps: list[tuple[int, GapFound]] = []
        self.size = draw.choice([2, 3, 3, 4, 4, 5, 6, 8, 10, 14]) if draw.random() < 0.97 else draw.randint(20, 50)
        self.limits = CausalLimits(
            window_events=draw.choice([1, 4, 256]),
            retained_events_max=draw.choice([1_000_000, 1_000_000, 1_000_000, 20]),
            kept_events_max=draw.choice([2, 10_000]),
            lag_events=draw.choice([1, 4, 64]),
            ask_after_s=draw.choice([0.2, 1.0]),
            patience_s=draw.choice([None, None, None, 3.0]),
        )
        self.nodes: dict[int, CausalNode] = {}
        self.links = CausalLinks(self, self.nodes, draw.choice([0.01, 0.1, 1.0, 3.0]))
        self.removed: set[int] = set()
        self._forgotten: set[int] = set()
        self._tokens = 0
        self._payloads = 0
        self._exports: list[tuple[int, int, Origin]] = []
        self._moving: dict[int, tuple[int, int]] = {}
        """Sessions on the move: the server that they left, and the one that they move to."""
        self._active = True
        for server in range(self.size):
            self._add_node(server)
        self._interest = {subject: self._some_servers() for subject in range(self.size + 2)}
        self._reply_chance = 0.7 / max(1.0, self.size * 0.4)

    def _check_promises(self) -> None:
        history = [each for node in self.nodes.values() for each in node.history()]
        self._truth = truth = CausalTruth(history, self._exports)
        self.problems += truth.problems
        self.lost = self._check_the_end(truth)

    def counts(self) -> dict[str, float]:
        truth = self._truth
        return {
            "causal_violations": truth.violations,
            "lost": self.lost,
            "repeated": truth.repeated,
            "out_of_order": truth.out_of_order,
            "servers": len(self.nodes),
            "events": len(truth.published),
            "deliveries": sum(map(len, truth.delivered.values())),
            "replies": self.replies,
            "crashes": self.crashes,
            "wipes": self.wipes,
            "partitions": self.partitions,
            "moves": self.moves,
            "joins": self.joins,
            "leaves": self.leaves,
            "gaps": len(self.gaps),
        }

    def reported(self, node: CausalNode, output: Output) -> None:
        """Take a durable output of a server."""
        match output:
            case Deliver() if (
                self._payloads < EVENTS_MAX // self.size and self.world.random.random() < self._reply_chance
            ):
                self.replies += 1
                self.world.after(self.world.random.choice([0.0, 0.01, 0.3]), lambda: self._publish(node))
            case GapFound():
                self.gaps.append((node.server, output))
            case PastExported(token=token, past=past):
                source, target = self._moving[token]
                arriving = ImportPast(token, past, source)
                self.world.after(self.world.random.uniform(0.0, 0.5), lambda: self.nodes[target].feed(arriving))
            case PastReached():
                self.moves += 1
                self._publish(node)

    def _play(self) -> None:
        world, draw = self.world, self.world.random
        for _ in range(draw.choice([10, 60, 150])):
            server = draw.randrange(self.size)
            world.at(draw.uniform(0, ACTIVE_S), lambda server=server: self._publish(self.nodes[server]))  # type: ignore[misc]
        disturbances = draw.sample(
            [self._crash, self._crash, self._wipe, self._partition, self._break, self._join, self._leave, self._wander],
            draw.randint(0, 8),
        )
        for _ in range(draw.choice([2, 10, 25]) if disturbances else 0):
            world.at(draw.uniform(0.5, ACTIVE_S), draw.choice(disturbances))
        for _ in range(draw.choice([0, 10])):
            world.at(draw.uniform(0, ACTIVE_S), self._change_interest)
        world.run(ACTIVE_S)
        self._active = False
        self.links.partition({})
        self.links.delay_s_max = 0.02
        world.run(ACTIVE_S + SETTLE_S)

    # Events of the world ---------------------------------------------------------------------------------------------

    def _add_node(self, server: int) -> None:
        self.nodes[server] = CausalNode(self, server)
        for other in range(server):
            self.world.after(0.0, lambda other=other: self.links.watch(other, server))  # type: ignore[misc]

    def _some_servers(self) -> set[int]:
        draw, there = self.world.random, [each for each in self.nodes if each not in self.removed]
        return {each for each in there if draw.random() < 0.4}

    def _publish(self, node: CausalNode) -> None:
        if self._active and node.server not in self.removed:
            self._payloads += 1
            servers = self._interest[self.world.random.randrange(len(self._interest))] - {node.server}
            node.feed(PublishTo(frozenset(servers), b"%d" % self._payloads))

    def _change_interest(self) -> None:
        self._interest[self.world.random.randrange(len(self._interest))] = self._some_servers()

    def _present(self) -> CausalNode | None:
        """Return a server that is alive and stays in the domain."""
        there = [node for node in self.nodes.values() if node.alive and node.server not in self.removed]
        return self.world.random.choice(there) if there else None

    def _crash(self, *, loses_log: bool = False) -> None:
        if node := self._present():
            self.crashes += 1
            node.crash(loses_log=loses_log)
            self.world.after(self.world.random.uniform(0.01, 4.0), lambda: self._start(node))

    def _start(self, node: CausalNode) -> None:
        """Start a server; it learns from the directory who left."""
        node.start()
        for server in self.removed - node.machine.knowledge.removed - {node.server}:
            node.feed(RemoveServer(server))
        for server in self._forgotten - node.machine.knowledge.forgotten:
            node.feed(RemoveServer(server, is_forgotten=True))

    def _wipe(self) -> None:
        if self._present() and self.wipes < 2:
            self.wipes += 1
            self._crash(loses_log=True)

    def _partition(self) -> None:
        self.partitions += 1
        self.links.partition({server: self.world.random.randrange(2) for server in self.nodes})
        self.world.after(self.world.random.uniform(0.1, 6.0), lambda: self.links.partition({}))

    def _break(self) -> None:
        one, other = self.world.random.sample(sorted(self.nodes), 2)
        self.links.break_link(one, other)

    def _join(self) -> None:
        if self._active:
            self.joins += 1
            server = len(self.nodes)
            self._add_node(server)
            for subject in self._interest:
                if self.world.random.random() < 0.4:
                    self._interest[subject] = self._interest[subject] | {server}

    def _leave(self) -> None:
        """A server leaves for good, without waiting for what it has sent."""
        node = self._present()
        if node is None or len(self.nodes) - len(self.removed) <= 2:
            return
        self.leaves += 1
        server = node.server
        self.removed.add(server)
        node.crash(loses_log=False)
        for other in self.nodes.values():
            other.feed(RemoveServer(server))
        for interested in self._interest.values():
            interested.discard(server)
        self._forget_when_possible(server, {})

    def _forget_when_possible(self, server: int, marks: dict[int, int]) -> None:
        """Forget a server that left once nobody waits for its events, or for the effects of these until now."""
        others = [node for node in self.nodes.values() if node.server not in self.removed]
        knows = all(node.alive and server in node.machine.knowledge.removed for node in others)
        if not marks and knows:
            marks = {node.server: node.machine.outgoing.last for node in others}
        if (
            marks
            and all(node.alive and not node.machine.waits_for(server) for node in others)
            and not any(
                number <= marks.get(node.server, 0) for node in others for number in node.machine.outgoing.retained
            )
        ):
            self._forgotten.add(server)
            for node in self.nodes.values():
                node.feed(RemoveServer(server, is_forgotten=True))
        else:
            self.world.after(1.0, lambda: self._forget_when_possible(server, marks))

    def _wander(self) -> None:
        """A session moves to another server."""
        source, target = self._present(), self._present()
        if source is None or target is None or source is target or not self._active:
            return
        self._tokens += 1
        self._moving[self._tokens] = source.server, target.server
        self._exports.append((self.world.moment(), self._tokens, source.machine.origin))
        source.feed(ExportPast(self._tokens))

    # Checks ----------------------------------------------------------------------------------------------------------

    def _check_the_end(self, truth: CausalTruth) -> int:
        """Check what is left when all is quiet; return how many events were lost."""
        may_give_up = self.limits.patience_s is not None or self.limits.retained_events_max < 1_000
        excused = {}
        for server, node in self.nodes.items():
            gaps = [gap for at, gap in self.gaps if at == server]
            own = {gap.origin for gap in gaps}
            over = {(each, life) for each, other in self.nodes.items() for life in range(1, other.incarnation)}
            gone = {(each, life) for each in self.removed for life in range(1, self.nodes[each].incarnation + 1)}
            everything = truth.published_origins() if server in self.removed else set()
            excused[server] = over | gone | everything | (own if may_give_up else set())
            unexpected = {gap.origin for gap in gaps if not node.had_in_an_earlier_life(gap)} - over - gone
            if unexpected and not may_give_up:
                self.problems.append(f"server {server} has a gap in the events of {sorted(unexpected)}")
            if server not in self.removed:
                self._check_rest(node)
        lost = truth.lost(excused)
        self.problems += [f"{dot} was lost for a destination" for dot in lost]
        return len(lost)

    def _check_rest(self, node: CausalNode) -> None:
        machine = node.machine
        if machine.held.items:
            self.problems.append(f"server {node.server} still holds {sorted(map(str, machine.held.items))}")
        if machine.outgoing.retained:
            self.problems.append(f"server {node.server} still retains {sorted(machine.outgoing.retained)}")
