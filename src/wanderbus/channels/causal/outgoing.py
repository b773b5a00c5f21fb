"""Events that this server published, kept until every destination has delivered them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus.channels.causal.changing_dict import ChangingDict
from wanderbus.channels.causal.header import Header, members
from wanderbus.channels.causal.interface import Carried, CausalSent, SendToPeer
from wanderbus.channels.causal.out_link import OutLink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wanderbus.channels.causal.interface import CausalLimits


class Outgoing:
    """Links to the other servers, and the published events that one of them still needs."""

    def __init__(self, limits: CausalLimits) -> None:
        self.last = 0
        """Number of the last event that was published."""
        self.links: dict[int, OutLink] = {}
        self.retained: ChangingDict[int, tuple[CausalSent, int]] = ChangingDict()
        """Events by number, with the destinations that still need them."""
        self._limits = limits

    def link(self, server: int) -> OutLink:
        """Return the link to ``server``, made when it is first needed."""
        if server not in self.links:
            self.links[server] = OutLink(server)
        return self.links[server]

    def befores(self, servers: Iterable[int]) -> dict[int, int]:
        """Return the number of the event before for each of ``servers``, in ascending order."""
        return {server: self.link(server).before for server in sorted(servers)}

    def add(self, sent: CausalSent) -> None:
        """Take an event that is published."""
        self.last = sent.header.number
        for server in members(sent.header.servers):
            self.link(server).enqueue(self.last)
        if sent.header.befores:
            self.retained[self.last] = sent, sent.header.servers

    def load(self, events: Iterable[tuple[int, tuple[CausalSent, int]]]) -> None:
        """Take over saved events with the destinations that need them, in ascending order."""
        self.retained.load(events)
        for number, (_, servers) in self.retained.items():
            for server in members(servers):
                self.link(server).waiting.append(number)

    def begin_again(self) -> None:
        """Count from the beginning, without events; all links are closed."""
        self.last = 0
        for number in list(self.retained):
            del self.retained[number]
        for server in list(self.links):
            self.links[server] = OutLink(server)

    def acknowledge(self, server: int, number: int) -> bool:
        """Note that ``server`` has delivered everything up to ``number``; return whether that is new."""
        done = self.link(server).acknowledge(number)
        self._release(server, done)
        return bool(done)

    def remove(self, server: int) -> None:
        """Give up everything for ``server``."""
        if link := self.links.pop(server, None):
            self._release(server, list(link.waiting))

    def settled(self) -> tuple[int, int]:
        """Return the settled mark: everything up to it is delivered, except at the servers of the bitmap."""
        mark, lagging = self.last, 0
        for server, link in self.links.items():
            if link.waiting:
                oldest = link.waiting[0]
                if self.last - oldest >= self._limits.lag_events:
                    lagging |= 1 << server
                else:
                    mark = min(mark, oldest - 1)
        return mark, lagging

    def pump(self) -> list[SendToPeer]:
        """Return the events that are due on each link."""
        window = self._limits.window_events
        outputs = []
        for server, link in self.links.items():
            for number in link.due(window):
                sent = self.retained[number][0]
                outputs.append(SendToPeer(server, Carried(link.encode(sent.header), sent.payload)))
        return outputs

    def drop(self, server: int, number: int) -> None:
        """Give up the events up to ``number`` for ``server``."""
        link = self.link(server)
        link.dropped = number
        self._release(server, link.acknowledge(number))

    def drop_oldest(self) -> list[tuple[int, int]]:
        """Drop the oldest events beyond the bound, unless they are on their way; return who needed which."""
        dropped: list[tuple[int, int]] = []
        while len(self.retained) > self._limits.retained_events_max:
            oldest = next(iter(self.retained))
            servers = list(members(self.retained[oldest][1]))
            if any(self.links[server].has_in_flight() for server in servers):
                break
            for server in servers:
                self.drop(server, oldest)
            dropped += [(server, oldest) for server in servers]
        return dropped

    def find(self, number: int) -> tuple[Header, bytes] | None:
        """Return an event that is still kept."""
        found = self.retained.get(number)
        return (found[0].header, found[0].payload) if found else None

    def _release(self, server: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            sent, servers = self.retained[number]
            servers &= ~(1 << server)
            if servers:
                self.retained[number] = sent, servers
            else:
                del self.retained[number]
