"""Simulated readers of channels by number: each follows one channel, page by page, through crashes and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wanderbus import protocol
from wanderbus.client.machine.messages import RequestSettled
from wanderbus.records import Published, decode_record
from wanderbus.simulation.device import Request, SimulatedDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.world import World

_PAUSE_S: Final = (0.05, 1.0)
"""Shortest and longest pause between two requests of one reader."""


class ChannelReader(SimulatedDevice):
    """A user at a server who follows the channel of ``subject``; a refused request is repeated."""

    node: DomainNode

    def __init__(self, world: World, node: DomainNode, subject: str, number: int) -> None:
        super().__init__(world, node, f"sip:r{number}@sim.test", "reader", 0.001)
        self.subject = subject
        self.found: list[int] = []
        self.gone: list[tuple[int, int]] = []
        """Ranges that the leader no longer kept: the first number of each, and the number behind it."""
        self.refusals = 0
        self.is_stopped = False
        self._next = 0
        self._begin(1)
        self.connect()
        self._act()

    def _act(self) -> None:
        """Request the next page unless one is on its way."""
        if self.is_stopped:
            return
        self.world.after(self.world.random.uniform(*_PAUSE_S), self._act)
        if not self._pending:
            limit = self.world.random.choice([1, 3, 50])
            self.ask(protocol.ListEvents(0, self.subject, self._next, limit=limit))

    def _answered(self, asked: Request, settled: RequestSettled) -> None:
        if settled.refusal is not None:
            self.refusals += 1
            return
        for row in settled.rows:
            if "kept_from" in row:
                self.gone.append((self._next, row["kept_from"]))
                self._next = row["kept_from"]
            else:
                self.found.append(row["number"])
                self._next = row["number"] + 1
        if settled.next is not None:
            self._next = max(self._next, int(settled.next))

    def check(self, leader: DomainNode) -> Iterator[str]:
        """Yield the differences between what was read and the log of ``leader``; all is quiet."""
        subjects = self.node.channels.below(self.subject)
        entries = [(offset, decode_record(payload)) for offset, _, payload in leader.disk.log]
        accepted = [at for at, record in entries if isinstance(record, Published) and record.event.subject in subjects]
        expected = [at for at in accepted if not any(first <= at < end for first, end in self.gone)]
        if self.found != expected:
            missed, more = sorted({*expected} - {*self.found}), sorted({*self.found} - {*expected})
            yield f"the history of {self.subject} at {self.node.name} lacks {missed} and has {more} too much"
        if self._pending:
            yield f"a request for the history of {self.subject} at {self.node.name} has no answer"
