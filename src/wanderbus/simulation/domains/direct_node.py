"""Simulated server with decentralised channels: broker, interest and sessions at leaders over a disk that crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    Append,
    Appended,
    ArrivalMatched,
    ArrivalsTaken,
    ArrivalsWanted,
    DirectArrivalMatched,
    DirectInterestChanged,
    ForwardPublish,
    InterestChanged,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MessageArrived,
    RoutesAnswered,
    SendOnLink,
    ServerStarted,
)
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.causal.interface import LogRewound
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.composition import Composition, Part
from wanderbus.domain.parts import BROKER, SERVER_LINKS
from wanderbus.domain.servers.direct_interest import DirectInterest
from wanderbus.domain.servers.leader_sessions import LeaderSessions
from wanderbus.domain.servers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.domain.servers.server_parts import ServerParts
from wanderbus.domain.servers.server_traffic import ServerTraffic
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import AnyRecord, decode_record
from wanderbus.simulation.disk import Disk
from wanderbus.simulation.domains.direct_links import DirectWire, DirectWires
from wanderbus.simulation.world import World

DOMAIN: Final = "sim.test"

_FOR_LEADERS: Final = (
    *(ForwardPublish, InterestChanged, ArrivalMatched, ArrivalsTaken, ArrivalsWanted),
    *(DirectInterestChanged, DirectArrivalMatched, RoutesAnswered),
)


class DirectNode:
    """A server with the name ``name``; it crashes and starts over its disk."""

    def __init__(
        self, world: World, name: str, channels: OwnChannels, config: BrokerConfig, next_sequence: Callable[[], int]
    ) -> None:
        self.name = name
        self.channels = channels
        self.disk = Disk(world)
        self.alive = False
        self.crashes = 0
        self.problems: list[str] = []
        self.wires: DirectWires
        """The links between servers, which the scenario sets."""
        self.written: dict[int, tuple[int, float]] = {}
        """Place in the history of the world, and time, of each record."""
        self._world = world
        self._config = msgspec.structs.replace(config, server=name, domain=DOMAIN)
        self._next_sequence = next_sequence
        self._life = 0
        self._links = 0
        self._to: dict[int, DirectWire] = {}
        """Wire of each link to a server."""
        self._devices: dict[int, Callable[[bytes], None]] = {}
        self._timers: dict[Hashable, object] = {}

    # Host -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from the disk."""
        state, direct = self.recovered(), self.channels.direct
        assert direct is not None
        self._life += 1
        self.alive = True
        self.broker = Broker(state, self._config, channels=self.channels)
        self.interest = DirectInterest(direct, epoch=self._life)
        leaders = LeaderSessions(self.channels, epoch=self._life, positions=dict(state.leaders.items()))
        self._parts = Composition()
        self._parts.add(BROKER, Part(self.broker.step, self._route_broker))
        self._reports = _Links()
        links: Any = self._reports
        servers = ServerParts(direct.server, links, leaders, self.interest)
        self._traffic = ServerTraffic(self._parts, servers, DOMAIN)
        self._note("starts")
        self.feed(ServerStarted())
        self._traffic.start(self._world.now)
        self._run()
        self._save_later(self.broker)

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self.problems += self.check_rows()
        self.crashes += 1
        self.alive = False
        self._note("crashes")
        self._timers.clear()
        self._to.clear()
        self._devices.clear()
        self.wires.server_crashed(self)
        self.disk.crash()
        if lose_rows:
            self.disk.forget_rows()

    def recovered(self, *, from_log_alone: bool = False) -> BrokerState:
        """Return the state on the disk: rows updated from the log, or rebuilt from the log alone."""
        state = BrokerState(self.name, self._config.publishes_remembered)
        log = self.disk.log
        if not from_log_alone and self.disk.rows_offset:
            state.load({name: rows.items() for name, rows in self.disk.rows.items()}, self.disk.rows_offset)
            state.wall_us = log[state.offset - 1][1]
        for offset, _, payload in log[state.offset :]:
            state.apply(offset, decode_record(payload))
        return state

    def records(self) -> list[AnyRecord]:
        """Return the records of the log."""
        return [decode_record(payload) for _, _, payload in self.disk.log]

    def next_link(self) -> int:
        """Return the number of a new link, in rising order."""
        self._links += 1
        return self._links

    # Machines -------------------------------------------------------------------------------------------------------

    def feed(self, *inputs: Input) -> None:
        """Feed ``inputs`` to the broker, and perform what follows."""
        if self.alive:
            self._parts.give(BROKER, [ClockRead(self._world.wall_us), *inputs])
            self._run()

    def _feed_links(self, *reports: Output) -> None:
        if self.alive:
            self._parts.precede(BROKER, ClockRead(self._world.wall_us))
            self._parts.give(SERVER_LINKS, reports)
            self._run()

    def _run(self) -> None:
        self._parts.run(self._world.now)
        for output in self._parts.take_outputs():
            self._perform(output)

    def _route_broker(self, outputs: list[Output], now: float) -> None:
        for_links: list[Output] = []
        for_leaders: list[Output] = []
        for output in outputs:
            match output:
                case SendOnLink(link=link) | LinkDropped(link=link) if link not in self._devices:
                    for_links.append(output)
                case _ if isinstance(output, _FOR_LEADERS):
                    for_leaders.append(output)
                case _:
                    self._parts.emit(output)
        self._traffic.give_broker_outputs(for_links, for_leaders)
        self._traffic.consumed(self.broker.take_done())

    def _perform(self, output: Input | Output) -> None:
        match output:
            case SendOnServerLink(link=link, payload=payload):
                if wire := self._to.get(link):
                    wire.send(self, payload)
            case CloseServerLink(link=link, reason=reason):
                if wire := self._to.get(link):
                    self.problems.append(f"{self.name} closes a link to {wire.other(self).name}: {reason}")
                    self.wires.break_link(wire, self)
            case ConnectServer(server=server):
                self.wires.watch(self.name, server)
            case SendOnLink(link=link, payload=payload):
                self._check_durable(payload)
                self._devices[link](payload)
            case Append(log=log, entries=entries, urgent=urgent):
                for offset, _, _ in entries:
                    self.written[offset] = self._next_sequence(), self._world.now
                life = self._life
                self.disk.append(log, entries, lambda durable: self._appended(life, log, durable), urgent=urgent)
            case SetTimer(key=key, at=at):
                self._set_timer(key, at)
            case CancelTimer(key=key):
                self._timers.pop(key, None)
            case LogRewound():
                self.problems.append(f"{self.name}: {output}")

    def _appended(self, life: int, log: str, durable: int) -> None:
        if life == self._life:
            self.feed(Appended(log, durable))

    def _set_timer(self, key: Hashable, at: float) -> None:
        token = self._timers[key] = object()

        def fire() -> None:
            if self._timers.get(key) is token:
                del self._timers[key]
                self._parts.precede(BROKER, ClockRead(self._world.wall_us))
                assert self._parts.give_timer(key), key
                self._run()

        self._world.at(at, fire)

    def _save_later(self, broker: Broker) -> None:
        def save() -> None:
            if self.alive and broker is self.broker:
                self.disk.save(broker.state.changes(), broker.state.offset)
                self._save_later(broker)

        self._world.after(self._world.random.uniform(0.2, 6.0), save)

    # Links ----------------------------------------------------------------------------------------------------------

    def link_opened(self, wire: DirectWire) -> None:
        """Report a link to another server, in place of an earlier one of the same opener."""
        if not self.alive:
            return
        for each in [one for one in self._to.values() if (one.source, one.target) == (wire.source, wire.target)]:
            self.link_closed(each)
        self._to[wire.numbers[self.name]] = wire
        self._feed_links(ServerLinkOpened(wire.numbers[self.name], wire.other(self).name, self is wire.source))

    def link_closed(self, wire: DirectWire) -> None:
        """Report a closed link, unless it is known."""
        if self.alive and self._to.pop(wire.numbers[self.name], None) is wire:
            self._feed_links(ServerLinkClosed(wire.numbers[self.name], wire.other(self).name, "it failed"))

    def arrived(self, wire: DirectWire, payloads: Sequence[bytes]) -> None:
        """Take messages of the other side of a link."""
        link = wire.numbers[self.name]
        if self.alive and self._to.get(link) is wire:
            self._feed_links(*[ServerMessageReceived(link, wire.other(self).name, each) for each in payloads])

    def open(self, user: str, receive: Callable[[bytes], None]) -> int:
        """Open a link of a device, which is reliable and fast; return its number."""
        link = self.next_link()
        self._devices[link] = lambda payload: self._world.after(0.001, lambda: receive(payload))
        self.feed(LinkOpened(link, user, "phone"))
        return link

    def send(self, link: int, *messages: protocol.AgentMessage) -> None:
        """Take messages of a device."""
        if link in self._devices:
            self.feed(*[MessageArrived(link, protocol.encode(each)) for each in messages])

    def close(self, link: int) -> None:
        """Close the link of a device."""
        if self._devices.pop(link, None) is not None:
            self.feed(LinkClosed(link, "it failed"))

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_durable(self, payload: bytes) -> None:
        """Note an event that is announced before it is durable."""
        match protocol.decode_from_broker(payload):
            case protocol.Notify(id=event) | protocol.PublishAccepted(id=event):
                if event.origin == self.name and event.number >= self.disk.durable:
                    self.problems.append(f"{event} was announced before it was durable")

    def check_rows(self) -> Iterator[str]:
        """Yield the differences between live state, rows with the rest of the log, and the log alone (DESIGN 5.1)."""
        live = _rows(self.broker.state)
        for what, state in (("rows and log", self.recovered()), ("log alone", self.recovered(from_log_alone=True))):
            for table, rows in _rows(state).items():
                if rows != live[table]:
                    yield f"{self.name}: the {what} give other {table} than the live state"

    def check_nothing_waits(self) -> Iterator[str]:
        """Yield what is still on its way though all is quiet."""
        causal = self.broker.state.direct.causal
        if causal.outgoing.retained:
            yield f"{self.name} retains {sorted(causal.outgoing.retained)}"
        if self.interest.pending or self.broker._interest._held:
            yield f"{self.name} has subscriptions that do not count: {self.interest.pending}"
        for link in self._to:
            if left := self._reports.unconsumed[link]:
                yield f"{self.name} has consumed {left} messages of a link too few"

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)


class _Links:
    """In place of the links between servers: passes reports on, and requests to the world."""

    def __init__(self) -> None:
        self.unconsumed: Counter[int] = Counter()
        """Messages of each link that were not reported as consumed; they keep the window of the sender closed."""

    def step(self, inputs: Sequence[Any], now: float) -> list[Any]:
        """Return the inputs, without the counts of consumed messages."""
        passed = []
        for each in inputs:
            if isinstance(each, ConsumedOnServerLink):
                self.unconsumed[each.link] -= each.messages
                continue
            if isinstance(each, ServerMessageReceived):
                self.unconsumed[each.link] += 1
            passed.append(each)
        return passed


def _rows(state: BrokerState) -> dict[str, dict[str, bytes]]:
    return {table.name: {key: msgspec.json.encode(row) for key, row in table.items()} for table in state.tables}
