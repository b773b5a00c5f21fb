"""Base of simulated domains: servers, devices, what happens to both, the rest that follows, and the truth."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import ClassVar, Final

from wanderbus.event import Event
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.domain_truth import DomainTruth
from wanderbus.simulation.domains.engines import Engines
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.scenario import Scenario

FILTER_LEASE_S: Final = 8.0
"""Lease of the filters of devices that hold back events."""
QUIET_S: Final = 40.0
"""Time without a new record after which the world is quiet: longer than each pause until something is repeated."""
SOON_S: Final = (0.0, 0.25)
"""Shortest and longest time after which devices notice and connect again that use a server as soon as it starts."""
SETTLE_S: Final = 1_500.0
"""Longest time until the world is quiet."""


class DomainScenario(Scenario):
    """A world with a domain, set up by the seed.

    A subclass adds nodes and devices when it is made, and plans what happens to them.
    """

    counted: ClassVar[dict[str, str]] = {
        "servers": "servers",
        "events": "events",
        "arrivals": "arrivals at other servers",
        "notifications": "notifications",
        "subscriptions": "subscriptions",
        "crashes": "server crashes",
        "device_crashes": "devices killed",
        "breaks": "broken links",
        "partitions": "partitions",
        "full_disks": "full disks",
        "gaps": "gaps",
        "held_back": "events held back by publishers",
    }
    active_s: float
    """Time in which something happens."""
    partition_s_max: ClassVar[float] = 5.0
    away_s: ClassVar[tuple[float, ...]] = (0.01, 0.5, 4.0)
    """Times for which a server is down."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.nodes: dict[str, DomainNode] = {}
        self.devices: list[DomainDevice] = []
        self.links = self._make_links()
        self.engines = Engines(self.world, seed, self.active_s)
        self.breaks = self.partitions = self.full_disks = self.device_crashes = self.events = 0
        self._truth: DomainTruth | None = None

    def _make_links(self) -> DomainLinks:
        return DomainLinks(self.world, self.nodes)

    def _add_node(self, node: DomainNode) -> None:
        self.nodes[node.name] = node
        node.links = self.links

    def counts(self) -> dict[str, float]:
        published = [(device, each) for device in self.devices for each in device.published.values()]
        held_back = [(device.node, each.event.subject) for device, each in published if each.held_back]
        return {
            **({} if self._truth is None else self._truth.counts()),
            "servers": len(self.nodes),
            "devices": len(self.devices),
            "crashes": sum(node.crashes for node in self.nodes.values()),
            "device_crashes": self.device_crashes,
            "breaks": self.breaks,
            "partitions": self.partitions,
            "full_disks": self.full_disks,
            "refused": sum(each.refused is not None for _, each in published),
            "held_back": len(held_back),
            "held_back_apart": sum(not node.channels.leads(subject) for node, subject in held_back),
        }

    def _play(self) -> None:
        self.engines.plan(self.nodes.values())
        self._begin()
        self._plan()
        self.world.run(self.active_s)
        self._repair()
        self._wait()

    def _begin(self) -> None:
        """Start the servers."""
        for node in self.nodes.values():
            node.start()

    @abstractmethod
    def _plan(self) -> None:
        """Plan what happens until ``active_s``."""

    def _repair(self) -> None:
        """Repair everything."""
        self.links.partition({})
        self.links.delay_s_max = 0.05
        self.engines.end_disturbances(self.nodes.values())
        for node in self.nodes.values():
            node.fill_disk(is_full=False)
            node.disk.on_append = lambda: None

    def _wait(self) -> None:
        """Let time pass until nothing is written any more."""
        end, before = self.world.now + SETTLE_S, -1
        while self.world.now < end and (records := sum(len(node.disk.log) for node in self.nodes.values())) != before:
            before = records
            self._before_rest()
            self.world.run(self.world.now + QUIET_S)

    def _before_rest(self) -> None:
        """Do what keeps the world from resting, again until it rests."""

    def _check_promises(self) -> None:
        self._truth = self._make_truth()
        self.problems += self._truth.problems
        self._check_rest()

    def _make_truth(self) -> DomainTruth:
        return DomainTruth(self.nodes, self.devices)

    def _check_rest(self) -> None:
        """Check that nothing waits, now that all is quiet."""
        for node in self.nodes.values():
            self.problems += [*node.problems, *node.check_rows(), *node.check_nothing_waits()]
            node.problems.clear()
        for device in self.devices:
            self.problems += device.check()

    # Events of the world --------------------------------------------------------------------------------------------

    def _node(self) -> DomainNode:
        return self.world.random.choice(list(self.nodes.values()))

    def _device(self) -> DomainDevice:
        return self.world.random.choice(self.devices)

    def _event(self, subject: str) -> Event:
        """Return a new event with ``x`` from 0 to 11 and ``y`` from 0 to 2."""
        draw = self.world.random
        self.events += 1
        return Event(subject, {"x": draw.randrange(12), "y": draw.randrange(3), "Uid": f"e{self.events}"})

    def _crash(self) -> None:
        """Crash a server, now or when it next writes."""
        node = self._node()
        if self.world.random.random() < 0.5:
            self._crash_now(node)
        else:
            node.disk.on_append = lambda: self.world.after(0.0, lambda: self._crash_now(node))

    def _crash_now(self, node: DomainNode, away_s: float | None = None) -> None:
        node.disk.on_append = lambda: None
        if self._may_crash(node):
            draw = self.world.random
            node.crash(lose_rows=draw.random() < 0.3)
            self.world.after(draw.choice(self.away_s) if away_s is None else away_s, lambda: self._restart(node))

    def _may_crash(self, node: DomainNode) -> bool:
        return node.alive

    def _restart(self, node: DomainNode) -> None:
        if not node.alive:
            node.start()

    def _break(self) -> None:
        self.breaks += 1
        self.links.break_some()

    def _partition(self) -> None:
        draw = self.world.random
        self.partitions += 1
        self.links.partition({name: draw.randrange(2) for name in self.nodes})
        self.world.after(draw.uniform(0.1, self.partition_s_max), lambda: self.links.partition({}))

    def _fill(self) -> None:
        """Fill the disk of a server, or those of all servers, for a while."""
        draw = self.world.random
        for node in list(self.nodes.values()) if draw.random() < 0.2 else [self._node()]:
            self.full_disks += 1
            node.fill_disk(is_full=True)
            self.world.after(draw.uniform(0.05, 4.0), partial(node.fill_disk, is_full=False))

    def _lose(self) -> None:
        self._device().lose()

    def _move(self) -> None:
        self._device().move()

    def _crash_device(self) -> None:
        self.device_crashes += 1
        self._device().crash()
