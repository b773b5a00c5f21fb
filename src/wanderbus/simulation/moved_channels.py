"""Simulated domain whose file changes between restarts: models of channels, leaders, and merging (SPEC K-01, J-08).

Servers are stopped and started again apart, with the next file, in all orders, also with the former one by mistake.
Servers with different files have no links. Whatever was accepted still reaches every subscription that counted before.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import ClassVar, Final

import msgspec

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.decentralised_checkers import DeliveryTruth
from wanderbus.simulation.domains.decentralised_device import DecentralisedDevice, Interest
from wanderbus.simulation.domains.decentralised_node import DecentralisedNode
from wanderbus.simulation.domains.domain_links import DomainLink, PolledLinks
from wanderbus.simulation.scenario import Scenario

CHANGE_S: Final = 20.0
"""Time between two changes of the file."""
APART_S: Final = 8.0
"""Longest time between the starts of the first and the last server with a new file."""
SETTLE_S: Final = 90.0
SUBJECTS: Final = ("A", "B", "C")
_KEY: Final = bytes(32)


class Layout(msgspec.Struct, frozen=True):
    """A file of the domain: its leaders, its decentralised subjects, and the merging of channels."""

    number: int
    leaders: tuple[str, ...]
    decentralised: tuple[str, ...]
    merging: Merging

    def channels(self, server: str, servers: list[str], *, has_sent_decentralised: bool) -> OwnChannels:
        """Return the channels as ``server`` sees them; it may have sent events directly under an earlier file."""
        directory = Directory(ChannelGroups(_KEY, 4), first_table(4, self.leaders, _KEY))
        decentralised = None
        if self.decentralised or has_sent_decentralised:
            decentralised = DecentralisedChannels(
                directory,
                server,
                servers,
                lambda subject: subject in self.decentralised,
                self.merging_of,
                (self.merging,),
                has_ordered=len(self.decentralised) < len(SUBJECTS),
                has_decentralised=bool(self.decentralised),
            )
        others = [each for each in servers if each != server]
        return OwnChannels(directory, server, self.merging_of, decentralised, others, str(self.number).encode())

    def merging_of(self, subject: str) -> Merging:
        """Return the merging of every channel."""
        return self.merging


class _Links(PolledLinks):
    """Links between servers with the same file."""

    def _may_open(self, source: str, target: str) -> bool:
        one, other = self._nodes[source], self._nodes[target]
        return super()._may_open(source, target) and one.channels.layout == other.channels.layout


class _Node(DecentralisedNode):
    """A server whose disk may fill, and which opens links to all others, as the search for owners of sessions does."""

    was_full = False

    def fill_disk(self, *, is_full: bool) -> None:
        """Fill the disk, or make room."""
        self.was_full |= is_full
        super().fill_disk(is_full=is_full)

    def _request_links(self) -> None:
        super()._request_links()
        for other in self.channels.others:
            self.links.watch(self.name, other)

    def _may_close(self, link: DomainLink) -> bool:
        """Allow it to close an own link, to request missing events again, and any link after its disk was full."""
        return link.source is self or self.was_full


class MovedScenario(Scenario):
    """A world with a domain whose file changes, set up by the seed."""

    counted: ClassVar = {
        "servers": "servers",
        "changes": "changes of the file",
        "mistakes": "starts with a former file",
        "events": "events",
        "notifications": "notifications",
        "subscriptions": "subscriptions",
        "refused": "refused publishes",
        "crashes": "stops and crashes of servers",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self._truth: DeliveryTruth | None = None
        self.mistakes = self._sequence = self._events = 0
        draw = self._draw = Random(f"moved {seed}")
        self.names = [f"s{number}" for number in range(1, draw.choice([2, 2, 3, 4]) + 1)]
        self.layouts: list[Layout] = []
        for number in range(1, draw.choice([2, 2, 3, 4]) + 1):
            self.layouts.append(self._layout(number))
        self.nodes: dict[str, DecentralisedNode] = {}
        links = self.links = _Links(self.world, self.nodes, draw.choice([0.005, 0.05, 0.5]))
        for name in self.names:
            channels = self.layouts[0].channels(name, self.names, has_sent_decentralised=False)
            node = self.nodes[name] = _Node(self.world, name, channels, BrokerConfig(), self.next_sequence)
            node.links = links
        self.devices = {
            name: DecentralisedDevice(node, lambda: self.world.now, lambda event: None)
            for name, node in self.nodes.items()
        }
        self._in_use = dict.fromkeys(self.names, self.layouts[0])
        self._starts: dict[str, int] = dict.fromkeys(self.names, 0)
        """Number of the last planned start of each server; earlier ones are void."""

    def _layout(self, number: int) -> Layout:
        draw = self._draw
        leaders = tuple(sorted(draw.sample(self.names, draw.choice([1, 1, min(2, len(self.names))]))))
        if self.layouts and draw.random() < 0.7:
            leaders = self.layouts[-1].leaders
        decentralised = draw.choice([(), ("A",), ("A", "B"), SUBJECTS, SUBJECTS])
        return Layout(number, leaders, decentralised, Merging(draw.choice(["none", "perfect", "adaptive"]), 0.7))

    def next_sequence(self) -> int:
        """Return the next place in the history of the world."""
        self._sequence += 1
        return self._sequence

    def _check_promises(self) -> None:
        self._truth = truth = DeliveryTruth(self.nodes, self.devices)
        self.problems += truth.problems
        self.problems += self._check_rest()

    def counts(self) -> dict[str, float]:
        truth = self._truth
        return {
            "servers": len(self.nodes),
            "changes": len(self.layouts) - 1,
            "mistakes": self.mistakes,
            "events": 0 if truth is None else len(truth.published),
            "notifications": 0 if truth is None else len(truth.notified),
            "subscriptions": sum(len(device.subscriptions) for device in self.devices.values()),
            "refused": sum(device.refused for device in self.devices.values()),
            "crashes": sum(node.crashes for node in self.nodes.values()),
            "lost": 0 if truth is None else truth.lost,
        }

    def _check_rest(self) -> Iterator[str]:
        for node in self.nodes.values():
            yield from [*node.problems, *node.check_rows(), *node.check_nothing_waits()]
            if missing := node.broker.diagnostics.missing:
                yield f"{node.name} does not know what {missing} want"

    def _play(self) -> None:
        world, draw = self.world, self._draw
        for node in self.nodes.values():
            node.start()
            self.devices[node.name].connect()
        end_s = CHANGE_S * len(self.layouts)
        for device in self.devices.values():
            for _ in range(draw.randint(1, 3)):
                world.at(draw.uniform(3.0, end_s), lambda device=device: device.subscribe(self._interest()))  # type: ignore[misc]
            world.at(draw.uniform(3.0, 8.0), lambda device=device: device.subscribe(self._interest()))  # type: ignore[misc]
        for _ in range(draw.choice([100, 300])):
            world.at(draw.uniform(4.0, end_s), lambda: self._publish(draw.choice(self.names)))
        for layout in self.layouts[1:]:
            self._plan_change(layout, CHANGE_S * (layout.number - 1))
        troubles = [self._crash, self._partition, self._fill, self._fill, self.links.break_some]
        for _ in range(draw.choice([0, 0, 5])):
            world.at(draw.uniform(4.0, end_s), draw.choice(troubles))
        world.run(end_s)
        self.links.partition({})
        self.links.delay_s_max = 0.02
        for node in self.nodes.values():
            node.fill_disk(is_full=False)
        world.run(end_s + SETTLE_S)
        for device in self.devices.values():
            device.connect()
        world.run(end_s + SETTLE_S + 20.0)

    def _plan_change(self, layout: Layout, at: float) -> None:
        """Let each server start with another file: after all have stopped, or one after the other."""
        draw = self._draw
        are_stopped = draw.random() < 0.5
        former = self.layouts[layout.number - 2]
        mistaken = draw.choice(self.names) if draw.random() < 0.4 else ""
        for name in self.names:
            start_s = at + draw.uniform(0.5, APART_S)
            stop_s = at if are_stopped else start_s - draw.uniform(0.05, 0.4)
            self.world.at(stop_s, lambda name=name: self._stop(name))  # type: ignore[misc]
            first = former if name == mistaken else layout
            self.world.at(start_s, lambda name=name, first=first: self._start(name, first))  # type: ignore[misc]
            if name == mistaken:
                self.mistakes += 1
                again_s = at + APART_S + draw.uniform(0.5, 4.0)
                self.world.at(again_s, lambda name=name: self._stop(name))  # type: ignore[misc]
                self.world.at(again_s + 0.3, lambda name=name: self._start(name, layout))  # type: ignore[misc]

    # Events of the world ---------------------------------------------------------------------------------------------

    def _interest(self) -> Interest:
        draw = self._draw
        return Interest(draw.choice([*SUBJECTS, "*"]), draw.choice([3, 6, 10]), draw.randint(0, 9))

    def _publish(self, name: str) -> None:
        self._events += 1
        draw = self._draw
        self.devices[name].publish(Event(draw.choice(SUBJECTS), {"K": draw.randint(0, 10), "N": self._events}))

    def _stop(self, name: str) -> None:
        self._starts[name] += 1
        if self.nodes[name].alive:
            self.nodes[name].crash(lose_rows=self._draw.random() < 0.3)

    def _start(self, name: str, layout: Layout) -> None:
        node = self.nodes[name]
        self._in_use[name] = layout
        has_sent = bool(node.storage.recovered().servers[name].servers)
        node.channels = layout.channels(name, self.names, has_sent_decentralised=has_sent)
        node.start()
        self.world.after(self._draw.uniform(0.0, 0.5), self.devices[name].connect)
        if self._draw.random() < 0.1:
            self.world.after(0.01, lambda: node.fill_disk(is_full=True))
            self.world.after(self._draw.uniform(0.5, 4.0), lambda: node.fill_disk(is_full=False))

    def _crash(self) -> None:
        name = self._draw.choice(self.names)
        if self.nodes[name].alive:
            self._stop(name)
            planned = self._starts[name]
            self.world.after(self._draw.uniform(0.01, 3.0), lambda: self._start_again(name, planned))

    def _start_again(self, name: str, planned: int) -> None:
        if self._starts[name] == planned and not self.nodes[name].alive:
            self._start(name, self._in_use[name])

    def _fill(self) -> None:
        """Fill the disk of a server, often while it starts with another file."""
        node = self.nodes[self._draw.choice(self.names)]
        node.fill_disk(is_full=True)
        self.world.after(self._draw.uniform(0.05, 4.0), lambda: node.fill_disk(is_full=False))

    def _partition(self) -> None:
        self.links.partition({name: self._draw.randrange(2) for name in self.nodes})
        self.world.after(self._draw.uniform(0.1, 5.0), lambda: self.links.partition({}))
