"""Simulated links between the servers of a domain: they keep order, are slow, break, and are half open for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from wanderbus.simulation.weeks.wire import Direction
from wanderbus.simulation.world import World

if TYPE_CHECKING:
    from wanderbus.simulation.domains.ordered_node import OrderedNode

_NOTICE_S_MAX: Final = 2.0
"""Longest time after which a side notices that a link is broken."""

_RETRY_S_MAX: Final = 1.0
"""Longest pause before a link is opened again."""


class ServerWire:
    """A link that ``source`` has opened to ``target``; each side has its own number for it."""

    def __init__(self, source: OrderedNode, target: OrderedNode) -> None:
        self.source = source
        self.target = target
        self.own = source.next_link()
        """Number of the link at the source."""
        self.accepted = target.next_link()
        """Number of the link at the target."""
        self.up: Direction | None = None
        self.down: Direction | None = None

    def connect(self, world: World, delay_s: float) -> None:
        """Begin to carry messages."""
        self.up = Direction(world, delay_s, lambda payloads: self.target.arrived(self, payloads))
        self.down = Direction(world, delay_s, lambda payloads: self.source.arrived(self, payloads))

    def cut(self) -> None:
        """Break both directions; a prefix of what is on its way still arrives."""
        for direction in (self.up, self.down):
            if direction is not None:
                direction.cut()


class ServerWires:
    """All links between servers; reports as those of ``domain/servers/messages.py``."""

    def __init__(self, world: World, nodes: Mapping[str, OrderedNode], delay_s_max: float) -> None:
        self.delay_s_max = delay_s_max
        self._world = world
        self._nodes = nodes
        self._sides: dict[str, int] = {}
        """Side of the partition on which each server is; servers of different sides have no links."""
        self._wires: dict[tuple[str, str], ServerWire] = {}
        """The newest link from each server to each other one."""
        self._pending: set[tuple[str, str]] = set()

    def watch(self, source: str, target: str, *, at_once: bool = False) -> None:
        """Open a link soon, and again until there is one."""
        if (source, target) not in self._pending:
            self._pending.add((source, target))
            pause_s = 0.0 if at_once else self._world.random.uniform(0.02, _RETRY_S_MAX)
            self._world.after(pause_s, lambda: self._open(source, target))

    def partition(self, sides: Mapping[str, int]) -> None:
        """Break the links between servers of different sides; with no sides all can be reached."""
        self._sides = dict(sides)
        for (source, target), wire in list(self._wires.items()):
            if not self._is_reachable(source, target):
                self.break_link(wire)

    def break_some(self) -> None:
        """Break one link."""
        if self._wires:
            self.break_link(self._world.random.choice(list(self._wires.values())))

    def break_link(self, wire: ServerWire, closed_by: OrderedNode | None = None) -> None:
        """Break a link; each side notices after its own time, the one that has closed it at once."""
        self._world.note("links", f"{wire.source.name} to {wire.target.name} breaks")
        self._world.after(0.0, wire.cut)
        for node in (wire.source, wire.target):
            late_s = 0.0 if node is closed_by else self._world.random.uniform(0.0, _NOTICE_S_MAX)
            self._world.after(late_s, lambda node=node: node.link_closed(wire, "it failed"))  # type: ignore[misc]

    def closed_at_source(self, wire: ServerWire) -> None:
        """Open a new link in place of one that its source has closed."""
        self.watch(wire.source.name, wire.target.name)

    def server_crashed(self, node: OrderedNode) -> None:
        """Break all links of a server."""
        for wire in list(self._wires.values()):
            if node in (wire.source, wire.target):
                self.break_link(wire)

    def _is_reachable(self, source: str, target: str) -> bool:
        return self._sides.get(source) == self._sides.get(target)

    def _open(self, source: str, target: str) -> None:
        self._pending.discard((source, target))
        one, other = self._nodes[source], self._nodes[target]
        if not one.alive:
            return  # it asks again when it starts
        if not other.alive or not self._is_reachable(source, target):
            self.watch(source, target)
            return
        former = self._wires.get((source, target))
        wire = self._wires[source, target] = ServerWire(one, other)
        wire.connect(self._world, self._world.random.uniform(0.0005, self.delay_s_max))
        if former is not None:
            former.cut()
            other.link_closed(former, "replaced")
        other.link_accepted(wire)
        one.link_opened(wire)
