"""One server of a simulated domain with causal order: its machine, its disk and its links."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from wanderbus.channels.causal.interface import (
    AnyCausalRecord,
    CausalDelivered,
    CausalLimits,
    CausalLinkClosed,
    CausalLinkOpened,
    GapFound,
    Message,
    MessageCame,
    SendToPeer,
    WriteRecord,
)
from wanderbus.channels.causal.server import CausalServer
from wanderbus.channels.causal.state import restored
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.records import SERVER_LOG
from wanderbus.simulation.disk import SimulatedDisk
from wanderbus.simulation.world import World

_RECORD = msgspec.msgpack.Decoder(AnyCausalRecord)
_MESSAGE = msgspec.msgpack.Decoder(Message)


class Written(msgspec.Struct, frozen=True):
    """A durable record: its place in the history of the world, and its server."""

    sequence: int
    server: int
    incarnation: int
    record: AnyCausalRecord


class CausalDomain(Protocol):
    """Interface of the world for its nodes."""

    world: World

    @property
    def links(self) -> CausalLinks:
        """Links between the servers."""
        ...

    limits: CausalLimits

    def reported(self, node: CausalNode, output: Output) -> None:
        """Take a durable output of a node's machine."""
        ...


class CausalNode:
    """A server that crashes and restarts from its log; outputs leave when the records before them are durable."""

    def __init__(self, domain: CausalDomain, server: int) -> None:
        self.server = server
        self.incarnation = 1
        self.alive = False
        self.lost_logs: list[Written] = []
        """Durable records of the logs that were lost."""
        self._domain = domain
        self._life = 0
        self.disk = SimulatedDisk(domain.world)
        self._pending: deque[tuple[int, Output, int | None]] = deque()
        """Outputs until the log is durable up to a place; a message has the session of its link."""
        self.start()

    def start(self) -> None:
        """Start from the log."""
        records = [_RECORD.decode(payload) for _, _, payload in self.disk.log]
        self.machine = CausalServer(restored((self.server, self.incarnation), records, self._domain.limits))
        self.alive = True

    def crash(self, *, loses_log: bool) -> None:
        """Lose power; with ``loses_log`` the disk dies too, and the next start is a new incarnation."""
        self.alive = False
        self._life += 1
        self._pending.clear()
        self._domain.links.close_all(self.server)
        if loses_log:
            self.lost_logs += self._written(self.disk.durable)
            self.incarnation += 1
            self.disk = SimulatedDisk(self._domain.world)
        else:
            self.disk.crash()

    def history(self) -> list[Written]:
        """Return all durable records, those of lost logs too."""
        return self.lost_logs + self._written(self.disk.durable)

    def had_in_an_earlier_life(self, gap: GapFound) -> bool:
        """Return whether a log that was lost had the last event of a gap, so that its origin did not keep them."""
        lost = [each.record.header for each in self.lost_logs if isinstance(each.record, CausalDelivered)]
        return gap.until is not None and any((each.origin, each.number) == (gap.origin, gap.until) for each in lost)

    def _written(self, end: int) -> list[Written]:
        log = self.disk.log[:end]
        return [Written(place, self.server, self.incarnation, _RECORD.decode(payload)) for _, place, payload in log]

    def feed(self, given: Input) -> None:
        """Feed an input to the machine, and perform its outputs."""
        if not self.alive:
            return
        world = self._domain.world
        world.note(f"server {self.server}", f"< {given!r}")
        for output in self.machine.step([given], world.now):
            if isinstance(output, WriteRecord):
                world.note(f"server {self.server}", f"writes {output.record!r}")
                payload = msgspec.msgpack.encode(output.record)
                entry = (len(self.disk.log), world.moment(), payload)
                self.disk.append(SERVER_LOG, [entry], self._synced)
            elif isinstance(output, SetTimer):
                self._set_timer(output)
            else:
                link = self._domain.links.session(self.server, output.server) if type(output) is SendToPeer else None
                self._pending.append((len(self.disk.log), output, link))
        self._release(self.disk.durable)

    def _synced(self, end: int) -> None:
        if self.alive:
            self._release(end)

    def _release(self, durable: int) -> None:
        while self._pending and self._pending[0][0] <= durable:
            _, output, link = self._pending.popleft()
            if not isinstance(output, SendToPeer):
                self._domain.reported(self, output)
            elif link is not None:
                self._domain.links.send(self.server, output.server, link, msgspec.msgpack.encode(output.message))

    def _set_timer(self, timer: SetTimer) -> None:
        life = self._life
        self._domain.world.at(timer.at, lambda: self.feed(TimerFired(timer.key)) if life == self._life else None)


class CausalLinks:
    """FIFO links between all servers, which break and are opened again as far as partitions allow."""

    def __init__(self, domain: CausalDomain, nodes: dict[int, CausalNode], delay_s_max: float) -> None:
        self.groups: dict[int, int] = {}
        """Side of the partition that each server is on; 0 if it is not named."""
        self.delay_s_max = delay_s_max
        self.retry_s_max = 1.0
        self._domain = domain
        self._nodes = nodes
        self._open: dict[tuple[int, int], int] = {}
        """Session of each open link, by the two servers in ascending order."""
        self._sessions = 0
        self._arrives_at: dict[tuple[int, int], float] = {}

    def watch(self, one: int, other: int) -> None:
        """Open the link between two servers again and again, whenever it is broken."""
        if (one, other) not in self._open and self._may_open(one, other):
            self._sessions += 1
            self._open[one, other] = self._sessions
            self._nodes[one].feed(CausalLinkOpened(other))
            self._nodes[other].feed(CausalLinkOpened(one))
        draw = self._domain.world.random
        self._domain.world.after(draw.uniform(0.2, 1.0) * self.retry_s_max, lambda: self.watch(one, other))

    def _may_open(self, one: int, other: int) -> bool:
        is_joined = self.groups.get(one, 0) == self.groups.get(other, 0)
        return is_joined and self._nodes[one].alive and self._nodes[other].alive

    def break_link(self, one: int, other: int) -> None:
        """Break a link: what is on its way is lost."""
        if self._open.pop((min(one, other), max(one, other)), None) is not None:
            self._nodes[one].feed(CausalLinkClosed(other))
            self._nodes[other].feed(CausalLinkClosed(one))

    def close_all(self, server: int) -> None:
        """Break all links of a server."""
        for pair in [each for each in self._open if server in each]:
            self.break_link(*pair)

    def partition(self, groups: dict[int, int]) -> None:
        """Divide the servers into groups that cannot reach each other."""
        self.groups = groups
        for one, other in list(self._open):
            if groups.get(one, 0) != groups.get(other, 0):
                self.break_link(one, other)

    def session(self, one: int, other: int) -> int | None:
        """Return the session of the open link between two servers."""
        return self._open.get((min(one, other), max(one, other)))

    def send(self, source: int, destination: int, session: int, data: bytes) -> None:
        """Send a message in a session, in order after those before; it is lost when the session has ended."""
        if self.session(source, destination) != session:
            return
        world, way = self._domain.world, (source, destination)
        at = max(world.now + world.random.uniform(0.001, self.delay_s_max), self._arrives_at.get(way, 0.0))
        self._arrives_at[way] = at

        def arrive() -> None:
            if self.session(source, destination) == session:
                self._nodes[destination].feed(MessageCame(source, _MESSAGE.decode(data)))

        world.at(at, arrive)
