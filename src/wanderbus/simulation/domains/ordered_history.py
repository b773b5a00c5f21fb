"""Simulated readers of channels by number: each follows one channel, page by page, through crashes and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from wanderbus import protocol
from wanderbus.client.machine.messages import RequestSettled
from wanderbus.simulation.device import Request, SimulatedDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.past_checkers import FOREVER
from wanderbus.simulation.world import World

_PAUSE_S: Final = (0.05, 1.0)
"""Shortest and longest pause between two requests of one reader."""

CALM_PAUSE_S: Final = (0.05, 10.0)
"""The same once nothing is published any more: a request at the end of a channel may read a whole log."""


class ChannelReader(SimulatedDevice):
    """A user at a server who follows the channel of ``subject``; a refused request is repeated."""

    node: DomainNode

    def __init__(self, world: World, node: DomainNode, subject: str, number: int) -> None:
        super().__init__(world, node, f"sip:r{number}@sim.test", "reader", 0.001)
        self.subject = subject
        self.found: list[tuple[int, int]] = []
        """Epoch and number of each event."""
        self.gone: list[tuple[int, int, int]] = []
        """Ranges that a leader no longer kept, or that were left out: the epoch, first number, and number behind."""
        self.refusals = 0
        self.pause_s = _PAUSE_S
        self.is_stopped = False
        self._epoch = 0
        self._next: int | None = None
        self._begin(1)
        self.connect()
        self._act()

    def _act(self) -> None:
        """Request the next page unless one is on its way."""
        if self.is_stopped:
            return
        self.world.after(self.world.random.uniform(*self.pause_s), self._act)
        if not self._pending:
            limit = self.world.random.choice([1, 3, 50])
            self.ask(protocol.ListEvents(0, self.subject, self._next, limit=limit, epoch=self._epoch))

    def _answered(self, asked: Request, settled: RequestSettled) -> None:
        if settled.refusal is not None:
            self.refusals += 1
            return
        for row in settled.rows:
            if "left_out" in row:
                self.gone.append((row["epoch"], self._next or 0, FOREVER))
            elif "kept_from" in row:
                self.gone.append((self._epoch, self._next or 0, row["kept_from"]))
                self._next = row["kept_from"]
            else:
                self._epoch, self._next = row["epoch"], row["number"] + 1
                self.found.append((row["epoch"], row["number"]))
        if settled.next is not None:
            epoch, _, number = settled.next.rpartition(":")
            self._epoch = int(epoch or self._epoch)
            self._next = int(number) if number else None

    def check(self, accepted: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Yield the differences between what was read and the ``accepted`` events, in their order; all is quiet."""
        expected = [
            (epoch, number)
            for epoch, number in sorted(accepted)
            if not any(led in (0, epoch) and first <= number < end for led, first, end in self.gone)
        ]
        if self.found != expected:
            missed, more = sorted({*expected} - {*self.found}), sorted({*self.found} - {*expected})
            yield f"the history of {self.subject} at {self.node.name} lacks {missed} and has {more} too much"
        if self._pending:
            yield f"a request for the history of {self.subject} at {self.node.name} has no answer"
