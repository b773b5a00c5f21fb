"""Simulated domain whose file changes between restarts: models of channels, leaders, and merging (SPEC K-01, J-08).

Servers are stopped and started again apart, with the next file, in all orders, also with the former one by mistake.
Servers with different files have no links. Whatever was accepted still reaches every subscription that counted before.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

import msgspec

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DOMAIN, DomainNode
from wanderbus.simulation.domains.domain_scenario import SOON_S, DomainScenario
from wanderbus.simulation.domains.links import DomainLink, DomainLinks

CHANGE_S: Final = 20.0
"""Time between two changes of the file."""
APART_S: Final = 8.0
"""Longest time between the starts of the first and the last server with a new file."""
SUBJECTS: Final = ("A", "B", "C")
_KEY: Final = bytes(32)


class Layout(msgspec.Struct, frozen=True):
    """A file of the domain: its leaders, its decentralised subjects, and the merging of channels."""

    number: int
    leaders: tuple[str, ...]
    decentralised: tuple[str, ...]
    merging: Merging
    joined: tuple[str, ...] = ()
    """Servers that have joined the first ones."""
    left: tuple[str, ...] = ()
    """Servers that have left."""
    tables: int = 0
    """Number of the first file with the same leaders, decentralised subjects and merging; 0 if that is this one."""

    def channels(self, server: str, servers: list[str], *, has_sent_decentralised: bool) -> OwnChannels:
        """Return the channels as ``server`` sees them; it may have sent events directly under an earlier file.

        ``servers`` are the first servers of the domain.
        """
        directory = Directory(ChannelGroups(_KEY, 4), first_table(4, self.leaders, _KEY))
        decentralised = None
        if self.decentralised or has_sent_decentralised:
            decentralised = DecentralisedChannels(
                directory,
                server,
                (*servers, *self.joined),
                lambda subject: subject in self.decentralised,
                self.merging_of,
                (self.merging,),
                has_ordered=len(self.decentralised) < len(SUBJECTS),
                has_decentralised=bool(self.decentralised),
                joined=len(self.joined),
                left=self.left,
            )
        others = [each for each in (*servers, *self.joined) if each not in (server, *self.left)]
        layout = str(self.tables or self.number).encode()
        joins = server in self.joined
        return OwnChannels(
            directory, server, self.merging_of, decentralised, others, layout, left=self.left, joins=joins
        )

    def merging_of(self, subject: str) -> Merging:
        """Return the merging of every channel."""
        return self.merging


class _Links(DomainLinks):
    """Links between servers with the same tables that know each other."""

    def _may_open(self, source: str, target: str) -> bool:
        one, other = self._nodes[source].channels, self._nodes[target].channels
        know_each_other = source in other.others and target in one.others
        return super()._may_open(source, target) and know_each_other and one.layout == other.layout


class _Node(DomainNode):
    """A server which opens links to all others, as the search for owners of sessions does.

    It may close an own one, to request missing events again, and any link after its disk was full.
    """

    was_full = False

    def fill_disk(self, *, is_full: bool) -> None:
        """Fill the disk, or make room."""
        self.was_full |= is_full
        super().fill_disk(is_full=is_full)

    def _request_links(self) -> None:
        super()._request_links()
        for other in self.channels.others:
            self.links.watch(self.name, other)


class MovedScenario(DomainScenario):
    """A world with a domain whose file changes, set up by the seed; each server has one device."""

    active_s = CHANGE_S
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
        draw = self.world.random
        self.mistakes = 0
        self.names = [f"s{number}" for number in range(1, draw.choice([2, 2, 3, 4]) + 1)]
        self.layouts: list[Layout] = []
        for number in range(1, draw.choice([2, 2, 3, 4]) + 1):
            self.layouts.append(self._layout(number))
        self.active_s = CHANGE_S * len(self.layouts)
        self.links.delay_s_max = draw.choice([0.005, 0.05, 0.5])
        for name in self.names:
            self._add_server(name, self.layouts[0])
        self._in_use = dict.fromkeys(self.names, self.layouts[0])
        self._starts: dict[str, int] = dict.fromkeys(self.names, 0)
        """Number of the last planned start of each server; earlier ones are void."""

    def _add_server(self, name: str, layout: Layout) -> None:
        """Add a server that begins with a file, and its device."""
        channels = layout.channels(name, self.names, has_sent_decentralised=False)
        node = _Node(self.world, name, channels, BrokerConfig())
        node.is_fixed = False
        node.may_close = partial(self._may_close, node)
        self._add_node(node)
        device = DomainDevice(self.world, node, f"sip:user-{name}@{DOMAIN}", "phone", 0.001)
        device.may_be_refused = True
        device.notice_s = device.retry_s = SOON_S
        self.devices.append(device)

    def _make_links(self) -> DomainLinks:
        return _Links(self.world, self.nodes)

    @staticmethod
    def _may_close(node: _Node, link: DomainLink) -> bool:
        return link.source is node or node.was_full

    def _layout(self, number: int) -> Layout:
        draw = self.world.random
        leaders = tuple(sorted(draw.sample(self.names, draw.choice([1, 1, min(2, len(self.names))]))))
        if self.layouts and draw.random() < 0.7:
            leaders = self.layouts[-1].leaders
        decentralised = draw.choice([(), ("A",), ("A", "B"), SUBJECTS, SUBJECTS])
        return Layout(number, leaders, decentralised, Merging(draw.choice(["none", "perfect", "adaptive"]), 0.7))

    def counts(self) -> dict[str, float]:
        return super().counts() | {"changes": len(self.layouts) - 1, "mistakes": self.mistakes}

    def _check_rest(self) -> None:
        super()._check_rest()
        for node in self.nodes.values():
            if missing := node.broker.diagnostics.missing:
                self.problems.append(f"{node.name} does not know what {missing} want")

    # Events of the world ---------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        world, draw, end_s = self.world, self.world.random, self.active_s
        for device in self.devices:
            world.at_random(draw.randint(1, 3), 3.0, end_s, partial(self._subscribe, device))
            world.at_random(1, 3.0, 8.0, partial(self._subscribe, device))
        world.at_random(draw.choice([100, 300]), 4.0, end_s, self._publish)
        for layout in self.layouts[1:]:
            self._plan_change(layout, CHANGE_S * (layout.number - 1))
        troubles = [self._crash, self._partition, self._fill, self._fill, self._break]
        for _ in range(draw.choice([0, 0, 5])):
            world.at(draw.uniform(4.0, end_s), draw.choice(troubles))

    def _plan_change(self, layout: Layout, at: float) -> None:
        """Let each server start with another file: after all have stopped, or one after the other."""
        world, draw = self.world, self.world.random
        are_stopped = draw.random() < 0.5
        former = self.layouts[layout.number - 2]
        mistaken = draw.choice(self.names) if draw.random() < 0.4 else ""
        for name in self.names:
            start_s = at + draw.uniform(0.5, APART_S)
            world.at(at if are_stopped else start_s - draw.uniform(0.05, 0.4), partial(self._stop, name))
            world.at(start_s, partial(self._start, name, former if name == mistaken else layout))
            if name == mistaken:
                self.mistakes += 1
                again_s = at + APART_S + draw.uniform(0.5, 4.0)
                world.at(again_s, partial(self._stop, name))
                world.at(again_s + 0.3, partial(self._start, name, layout))

    def _subscribe(self, device: DomainDevice) -> None:
        draw = self.world.random
        expression = f"x < {draw.choice([3, 6, 10])} and x != {draw.randint(0, 9)}"
        device.subscribe(draw.choice([*SUBJECTS, "*"]), expression)

    def _publish(self) -> None:
        self._device().publish(self._event(self.world.random.choice(SUBJECTS)))

    def _stop(self, name: str) -> None:
        self._starts[name] += 1
        if self.nodes[name].alive:
            self.nodes[name].crash(lose_rows=self.world.random.random() < 0.3)

    def _start(self, name: str, layout: Layout) -> None:
        node, draw = self.nodes[name], self.world.random
        self._in_use[name] = layout
        has_sent = bool(node.storage.recovered().servers[name].servers)
        node.channels = layout.channels(name, self.names, has_sent_decentralised=has_sent)
        node.start()
        if draw.random() < 0.1:
            self.world.after(0.01, partial(node.fill_disk, is_full=True))
            self.world.after(draw.uniform(0.5, 4.0), partial(node.fill_disk, is_full=False))

    def _crash(self) -> None:
        name = self._node().name
        if self.nodes[name].alive:
            self._stop(name)
            planned = self._starts[name]
            self.world.after(self.world.random.uniform(0.01, 3.0), lambda: self._start_again(name, planned))

    def _start_again(self, name: str, planned: int) -> None:
        if self._starts[name] == planned and not self.nodes[name].alive:
            self._start(name, self._in_use[name])
