"""Simulated links between the servers of a domain: they keep order, are slow, break, and are half open for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from wanderbus.simulation.wire import WireDirection
from wanderbus.simulation.world import World

if TYPE_CHECKING:
    from wanderbus.simulation.domains.domain_node import DomainNode

NOTICE_S_MAX: Final = 2.0
"""Longest time after which a side notices that a link is broken."""

RETRY_S_MAX: Final = 1.0
"""Longest pause before a link is opened again."""


class DomainLink:
    """A link that ``source`` has opened to ``target``; each side has its own number for it."""

    def __init__(
        self, world: World, source: DomainNode, target: DomainNode, delay_s: float, ends: tuple[str, str]
    ) -> None:
        self.source = source
        self.target = target
        self.ends = ends
        """Names of source and target, as the links know them."""
        self.numbers = {source.name: source.next_link(), target.name: target.next_link()}
        self.on_sent: Callable[[bytes], None] = lambda payload: None
        """Called with each message of both sides."""
        self._directions = {
            source.name: WireDirection(world, delay_s, lambda payloads: target.arrived(self, payloads)),
            target.name: WireDirection(world, delay_s, lambda payloads: source.arrived(self, payloads)),
        }

    def other(self, node: DomainNode) -> DomainNode:
        """Return the server at the other end."""
        return self.target if node is self.source else self.source

    def send(self, node: DomainNode, payload: bytes) -> None:
        """Send a message of ``node``."""
        self.on_sent(payload)
        self._directions[node.name].send(payload)

    def cut(self) -> None:
        """Break both directions; a prefix of what is on its way still arrives."""
        for each in self._directions.values():
            each.cut()


class DomainLinks:
    """All links between servers, which request them: at the first start without a pause, and when one is closed."""

    def __init__(self, world: World, nodes: Mapping[str, DomainNode]) -> None:
        self.delay_s_max = 0.05
        self.on_sent: Callable[[bytes], None] = lambda payload: None
        """Called with each message of all links that are opened from now on."""
        self._world = world
        self._nodes = nodes
        self._sides: Mapping[str, int] = {}
        """Side of the partition on which each server is; servers of different sides have no links."""
        self._apart: frozenset[frozenset[str]] = frozenset()
        """Pairs of servers that have no links, whatever their sides."""
        self._links: dict[tuple[str, str], DomainLink] = {}
        """The newest link from each server to each other one."""
        self._pending: set[tuple[str, str]] = set()
        self._unwanted: set[tuple[str, str]] = set()
        """Links that their sources have wanted, and do not any more."""

    def watch(self, source: str, target: str) -> None:
        """Open a link soon, and open it again whenever it is closed."""
        self._unwanted.discard((source, target))
        self._request(source, target, at_once=not self._nodes[source].crashes)

    def unwatch(self, source: str, target: str) -> None:
        """Close a link that its source no longer wants, or stop opening it."""
        self._unwanted.add((source, target))
        if (link := self._links.pop((source, target), None)) is not None:
            self.break_link(link, self._nodes[source])

    def unwatch_all(self, source: str) -> None:
        """Stop opening links of a server."""
        self._unwanted |= {each for each in (*self._links, *self._pending) if each[0] == source}

    def partition(self, sides: Mapping[str, int]) -> None:
        """Break the links between servers of different sides; with no sides all can be reached."""
        self._sides = sides
        self._break_unreachable()

    def separate(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Break the links between the servers of each of these pairs, and of no others; with no pairs all return."""
        self._apart = frozenset(map(frozenset, pairs))
        self._break_unreachable()

    def _break_unreachable(self) -> None:
        for (source, target), link in list(self._links.items()):
            if not self.is_reachable(source, target):
                self.break_link(link)

    def break_some(self) -> None:
        """Break one link."""
        if self._links:
            self.break_link(self._world.random.choice(list(self._links.values())))

    def break_link(self, link: DomainLink, closed_by: DomainNode | None = None) -> None:
        """Break a link; each side notices after its own time, the one that has closed it at once."""
        self._world.note("links", f"{link.source.name} to {link.target.name} breaks")
        self._world.after(0.0, link.cut)
        for node in (link.source, link.target):
            late_s = 0.0 if node is closed_by else self._world.random.uniform(0.0, NOTICE_S_MAX)
            self._world.after(late_s, lambda node=node: self._notice(link, node))  # type: ignore[misc]

    def server_crashed(self, node: DomainNode) -> None:
        """Break all links of a server."""
        for link in [each for each in self._links.values() if node in (each.source, each.target)]:
            self.break_link(link)

    def is_reachable(self, source: str, target: str) -> bool:
        """Return whether nothing separates two servers."""
        return frozenset((source, target)) not in self._apart and self._sides.get(source, 0) == self._sides.get(
            target, 0
        )

    def _may_open(self, source: str, target: str) -> bool:
        one, other = self._nodes[source], self._nodes[target]
        is_up = one.alive and other.alive and one.knows(target) and other.knows(source)
        return is_up and self.is_reachable(source, target)

    def _request(self, source: str, target: str, *, at_once: bool = False) -> None:
        if (source, target) not in self._pending:
            self._pending.add((source, target))
            pause_s = 0.0 if at_once else self._world.random.uniform(0.02, RETRY_S_MAX)
            self._world.after(pause_s, lambda: self._try(source, target))

    def _try(self, source: str, target: str) -> None:
        self._pending.discard((source, target))
        if (source, target) in self._unwanted:
            return
        if self._may_open(source, target):
            self._open(source, target)
        elif self._nodes[source].alive:  # otherwise it requests the link when it starts
            self._request(source, target)

    def _open(self, source: str, target: str) -> None:
        one, other = self._nodes[source], self._nodes[target]
        delay_s = self._world.random.uniform(0.0005, self.delay_s_max)
        link = self._links[source, target] = DomainLink(self._world, one, other, delay_s, (source, target))
        link.on_sent = self.on_sent
        other.link_opened(link)
        one.link_opened(link)

    def _notice(self, link: DomainLink, node: DomainNode) -> None:
        """Report a broken link to one of its servers; the source requests the next one, unless it has crashed."""
        if node.link_closed(link, "it failed") and node is link.source:
            self._request(*link.ends)
