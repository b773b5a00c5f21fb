"""Simulated readers of channels by number: each follows one channel, page by page, through crashes and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from wanderbus import protocol
from wanderbus.records import Published, decode_record
from wanderbus.simulation.domains.ordered_node import OrderedNode
from wanderbus.simulation.world import World

_PAUSE_S: Final = (0.05, 1.0)
"""Shortest and longest pause between two requests of one reader."""


class ChannelReader:
    """A user at a server who follows the channel of ``subject``; a refused request is repeated."""

    def __init__(self, world: World, node: OrderedNode, subject: str, number: int) -> None:
        self.node = node
        self.subject = subject
        self.found: list[int] = []
        self.gone: list[tuple[int, int]] = []
        """Ranges that the leader no longer kept: the first number of each, and the number behind it."""
        self.refusals = 0
        self.is_stopped = False
        self._world = world
        self._user = f"sip:r{number}@sim.test"
        self._next = 0
        self._link = 0
        self._requests = 0
        self._asked: int | None = None
        self._rows: list[Mapping[str, int]] = []
        world.after(world.random.uniform(*_PAUSE_S), self._act)

    @property
    def is_waiting(self) -> bool:
        """Return whether a request has no answer."""
        return self._asked is not None

    def _act(self) -> None:
        """Request the next page unless one is on its way; attach first if the server has been started again."""
        if self.is_stopped:
            return
        self._world.after(self._world.random.uniform(*_PAUSE_S), self._act)
        if not self.node.alive:
            return
        if not self.node.has_link(self._link):
            self._link = self.node.open_directly(self._user, "reader", self._receive)
            self._asked = None
            self._send(protocol.Attach(1, "default", None, keep=True))
        if self._asked is None:
            self._requests += 1
            self._asked, self._rows = self._requests, []
            limit = self._world.random.choice([1, 3, 50])
            self._send(protocol.ListEvents(self._requests, self.subject, self._next, limit=limit))

    def _send(self, message: protocol.AgentMessage) -> None:
        self.node.sent_directly(self._link, protocol.encode(message))

    def _receive(self, payload: bytes) -> None:
        match protocol.decode_from_broker(payload):
            case protocol.Listing(request=request, rows=rows, more=more, next=after) if request == self._asked:
                self._rows += rows
                if not more:
                    self._asked = None
                    self._take(after)
            case protocol.RequestRefused(request=request) if request == self._asked:
                self._asked = None
                self.refusals += 1

    def _take(self, after: str | None) -> None:
        for row in self._rows:
            if "kept_from" in row:
                self.gone.append((self._next, row["kept_from"]))
                self._next = row["kept_from"]
            else:
                self.found.append(row["number"])
                self._next = row["number"] + 1
        if after is not None:
            self._next = max(self._next, int(after))

    def check(self, leader: OrderedNode) -> Iterator[str]:
        """Yield the differences between what was read and the log of ``leader``; all is quiet."""
        subjects = self.node.channels.below(self.subject)
        entries = [(offset, decode_record(payload)) for offset, _, payload in leader.disk.log]
        accepted = [at for at, record in entries if isinstance(record, Published) and record.event.subject in subjects]
        expected = [at for at in accepted if not any(first <= at < end for first, end in self.gone)]
        if self.found != expected:
            missed, more = sorted({*expected} - {*self.found}), sorted({*self.found} - {*expected})
            yield f"the history of {self.subject} at {self.node.name} lacks {missed} and has {more} too much"
        if self.is_waiting:
            yield f"a request for the history of {self.subject} at {self.node.name} has no answer"
