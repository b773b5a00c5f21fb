"""Moves of channel groups from leader to leader, one after the other (SPEC J-08, S-07).

::

    old leader ── prepare ──▶ every other server wants the events of the group at the new leader too
               ◀─ prepared ──
      holds what is published from here on
               ── taken? ───▶ every other server has received all that the old leader has numbered
               ◀─ taken ─────
               ── fence and publishers ──▶ the new leader leads, and gets what was held
               ◀─ leads ─────
               ── announcement ──▶ every other server wants nothing of the old leader any more
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from wanderbus.evaluation.handover.rendezvous import RendezvousNetwork

_SHORT: Final = len(msgspec.msgpack.encode((1, 63, "s199", 2)))
"""Bytes of a message that names a group, a server and an epoch."""


class GroupMove(NamedTuple):
    """A move of a channel group that has ended."""

    pause_s: float
    """Time for which events waited for a leader."""
    rows: int
    """Subscriptions of servers that the new leader got."""


class GroupMoves:
    """Moves that wait, the present one, and those that have ended."""

    def __init__(self, network: RendezvousNetwork) -> None:
        self.ended: list[GroupMove] = []
        self._network = network
        self._waiting: deque[tuple[int, int]] = deque()
        self._is_moving = False

    def move(self, subject: str, to: int) -> None:
        """Move the group of a subject to another leader, when the moves before it have ended."""
        self._waiting.append((self._network.groups.group_of(subject), to))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_moving:
            group, new = self._waiting.popleft()
            old = self._network.leader(0, group)
            if old != new:
                self._is_moving = True
                _Move(self._network, group, old, new, self._end).begin()

    def _end(self, ended: GroupMove) -> None:
        self.ended.append(ended)
        self._is_moving = False
        self._go_on()


class _Move:
    """The present move."""

    def __init__(
        self, network: RendezvousNetwork, group: int, old: int, new: int, end: Callable[[GroupMove], None]
    ) -> None:
        self._network = network
        self._group = group
        self._old, self._new = old, new
        self._end = end
        self._paused_s = 0.0
        self._rows = 0

    def begin(self) -> None:
        """Let all servers prepare."""
        everyone = list(self._network.servers)
        self._ask_all(everyone, self._prepare, self._pause)

    def _ask_all(
        self, servers: list[int], do: Callable[[int, Callable[[], None]], None], then: Callable[[], None]
    ) -> None:
        """Let servers do something, each when the old leader's message has come; go on when all have answered."""
        missing = set(servers)

        def answered(server: int) -> None:
            missing.discard(server)
            if not missing:
                then()

        def answer(server: int) -> None:
            self._send(server, self._old, partial(answered, server))

        for server in servers:
            self._send(self._old, server, partial(do, server, partial(answer, server)))

    def _send(self, source: int, target: int, arrive: Callable[[], None], size: int = _SHORT) -> None:
        if source == target:
            arrive()
        else:
            self._network.fabric.send(source, target, "group", size, arrive)

    def _prepare(self, server: int, then: Callable[[], None]) -> None:
        network = self._network
        network.also[server][self._group] = self._new
        network.ask(server, self._new, network.wanted(server, self._group), "copy")
        network.when_effective(server, then)

    def _pause(self) -> None:
        """Hold what is published, until all servers have what was published before."""
        self._paused_s = self._network.fabric.world.now
        self._network.held[self._group] = []
        self._ask_all(list(self._network.servers), lambda server, then: then(), self._fence)

    def _fence(self) -> None:
        """Name the new leader, and pass on what was held."""
        network, group = self._network, self._group
        table = network.tables[self._old]
        epoch = table.leaders[group].epoch
        network.tables[self._old] = table = table.relocated(group, f"s{self._new}", epoch=epoch)
        publishers = len(msgspec.msgpack.encode([(f"sip:publisher{each}@example.org", 1) for each in network.servers]))

        def lead() -> None:
            network.tables[self._new] = table
            pause_s = network.fabric.world.now - self._paused_s
            self._rows = network.rows(self._new, group)
            self._send(self._new, self._old, partial(self._announce, pause_s))

        self._send(self._old, self._new, lead, publishers)
        for each in network.held.pop(group):
            network.publish(self._old, each)

    def _announce(self, pause_s: float) -> None:
        self._ask_all(list(self._network.servers), self._adopt, lambda: self._end(GroupMove(pause_s, self._rows)))

    def _adopt(self, server: int, then: Callable[[], None]) -> None:
        """Let a server know the new leader alone."""
        network = self._network
        network.tables[server] = network.tables[self._old]
        del network.also[server][self._group]
        network.withdraw(server, self._old, network.wanted(server, self._group), "copy")
        then()
