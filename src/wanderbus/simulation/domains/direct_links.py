"""Simulated links between servers with decentralised channels: they keep order, break, and open again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from wanderbus.simulation.weeks.wire import Direction
from wanderbus.simulation.world import World

if TYPE_CHECKING:
    from wanderbus.simulation.domains.direct_node import DirectNode

_NOTICE_S_MAX: Final = 2.0
"""Longest time after which a side notices that a link is broken."""

_RETRY_S_MAX: Final = 1.0
"""Longest pause before a link is opened again."""


class DirectWire:
    """A link that ``source`` has opened to ``target``; each side has its own number for it."""

    def __init__(self, world: World, source: DirectNode, target: DirectNode, delay_s: float) -> None:
        self.source = source
        self.target = target
        self.numbers = {source.name: source.next_link(), target.name: target.next_link()}
        self._directions = {
            source.name: Direction(world, delay_s, lambda payloads: target.arrived(self, payloads)),
            target.name: Direction(world, delay_s, lambda payloads: source.arrived(self, payloads)),
        }

    def other(self, node: DirectNode) -> DirectNode:
        """Return the server at the other end."""
        return self.target if node is self.source else self.source

    def send(self, node: DirectNode, payload: bytes) -> None:
        """Send a message of ``node``."""
        self._directions[node.name].send(payload)

    def cut(self) -> None:
        """Break both directions; a prefix of what is on its way still arrives."""
        for each in self._directions.values():
            each.cut()


class DirectWires:
    """All links between servers: each server opens one to each other, again and again."""

    def __init__(self, world: World, nodes: Mapping[str, DirectNode], delay_s_max: float) -> None:
        self.delay_s_max = delay_s_max
        self._world = world
        self._nodes = nodes
        self._sides: Mapping[str, int] = {}
        self._wires: dict[tuple[str, str], DirectWire] = {}
        self._watched: set[tuple[str, str]] = set()

    def watch(self, source: str, target: str) -> None:
        """Open a link, and open it again whenever it is closed."""
        if (source, target) not in self._watched:
            self._watched.add((source, target))
            self._world.after(self._world.random.uniform(0.0, _RETRY_S_MAX), lambda: self._look(source, target))

    def partition(self, sides: Mapping[str, int]) -> None:
        """Break the links between servers of different sides; with no sides all can be reached."""
        self._sides = sides
        for (source, target), wire in list(self._wires.items()):
            if not self._is_reachable(source, target):
                self.break_link(wire)

    def break_some(self) -> None:
        """Break one link."""
        if self._wires:
            self.break_link(self._world.random.choice(list(self._wires.values())))

    def break_link(self, wire: DirectWire, closed_by: DirectNode | None = None) -> None:
        """Break a link; each side notices after its own time, the one that has closed it at once."""
        self._world.after(0.0, wire.cut)
        for node in (wire.source, wire.target):
            late_s = 0.0 if node is closed_by else self._world.random.uniform(0.0, _NOTICE_S_MAX)
            self._world.after(late_s, lambda node=node: self._close(wire, node))  # type: ignore[misc]

    def server_crashed(self, node: DirectNode) -> None:
        """Break all links of a server."""
        for wire in [each for each in self._wires.values() if node in (each.source, each.target)]:
            self.break_link(wire, node)

    def _close(self, wire: DirectWire, node: DirectNode) -> None:
        node.link_closed(wire)
        key = wire.source.name, wire.target.name
        if node is wire.source and self._wires.get(key) is wire:
            del self._wires[key]

    def _is_reachable(self, source: str, target: str) -> bool:
        return self._sides.get(source, 0) == self._sides.get(target, 0)

    def _look(self, source: str, target: str) -> None:
        one, other = self._nodes[source], self._nodes[target]
        if (source, target) not in self._wires and one.alive and other.alive and self._is_reachable(source, target):
            wire = DirectWire(self._world, one, other, self._world.random.uniform(0.0005, self.delay_s_max))
            self._wires[source, target] = wire
            other.link_opened(wire)
            one.link_opened(wire)
        self._world.after(self._world.random.uniform(0.02, _RETRY_S_MAX), lambda: self._look(source, target))
