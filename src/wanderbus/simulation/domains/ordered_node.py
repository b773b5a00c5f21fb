"""Simulated server of an ordered domain: its broker, its sessions at the leaders, and its disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    Append,
    Appended,
    ArrivalMatched,
    ArrivalsTaken,
    ArrivalsWanted,
    DiskFreed,
    DiskFull,
    ForwardPublish,
    InterestChanged,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    LogBegins,
    MessageArrived,
    SendOnLink,
    ServerStarted,
)
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.domain.servers.leader_sessions import LeaderSessions
from wanderbus.domain.servers.messages import (
    CloseServerLink,
    ConnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import AnyRecord, decode_record
from wanderbus.simulation.disk import Disk
from wanderbus.simulation.domains.ordered_links import ServerWire, ServerWires
from wanderbus.simulation.weeks.wire import Direction, Wire
from wanderbus.simulation.world import World

DOMAIN: Final = "sim.test"

_FOR_SESSIONS: Final = (ForwardPublish, InterestChanged, ArrivalsTaken, ArrivalsWanted, ArrivalMatched)


class OrderedNode:
    """A server with the name ``name``; it crashes and starts over its disk."""

    def __init__(self, world: World, name: str, channels: OwnChannels, config: BrokerConfig) -> None:
        self.name = name
        self.channels = channels
        self.disk = Disk(world)
        self.crashes = 0
        self.alive = False
        self.broker: Broker | None = None
        self.sessions: LeaderSessions | None = None
        self.problems: list[str] = []
        self.log_begins = 0
        """Offset below which records of the log are lost for other servers."""
        self.wires: ServerWires
        """The links between servers, which the scenario sets."""
        self._config = msgspec.structs.replace(config, server=name, domain=DOMAIN)
        self._world = world
        self._life = 0
        self._links = 0
        self._own: dict[int, ServerWire] = {}
        self._accepted: dict[int, ServerWire] = {}
        self._devices: dict[int, Wire] = {}
        self._device_links: dict[tuple[str, str], int] = {}
        self._timers: dict[Hashable, object] = {}
        self._is_full = False

    # Host -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from the disk."""
        state = self.recovered()
        self._life += 1
        self.alive = True
        self.broker = Broker(state, self._config, channels=self.channels)
        self.sessions = LeaderSessions(self.channels, epoch=self._life, positions=dict(state.leaders.items()))
        self._note("starts")
        for each in self.sessions.start():
            self._perform_for_sessions(each)
        self.feed(ServerStarted())
        self._save_later(self.broker)

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self.problems += self.check_rows()
        self.crashes += 1
        self.alive, self.broker, self.sessions, self._is_full = False, None, None, False
        self._timers.clear()
        self._own.clear()
        self._accepted.clear()
        self._device_links.clear()
        for wire in self._devices.values():
            wire.cut()
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

    def fill_disk(self, *, is_full: bool) -> None:
        """Fill the disk, or make room."""
        if self.alive and self._is_full != is_full:
            self._is_full = is_full
            self._note("disk full" if is_full else "disk freed")
            self.feed(DiskFull() if is_full else DiskFreed())

    def drop_log(self) -> None:
        """Lose old records of the log, as retention does."""
        if self.alive and self.disk.durable:
            self.log_begins = max(
                self.log_begins, self._world.random.randint(self.disk.durable // 2, self.disk.durable)
            )
            self._note(f"log begins at {self.log_begins}")
            self.feed(LogBegins(self.log_begins))

    # Machines -------------------------------------------------------------------------------------------------------

    def feed(self, *inputs: Input) -> None:
        """Feed ``inputs`` to the broker, and let both machines answer each other."""
        pending: Sequence[Input] = inputs
        while pending and self.broker is not None:
            outputs = self.broker.step([ClockRead(self._world.wall_us), *pending], self._world.now)
            for_sessions: list[Input | Output] = []
            for output in outputs:
                if isinstance(output, _FOR_SESSIONS):
                    for_sessions.append(output)
                else:
                    self._perform(output)
            pending = self._step_sessions(for_sessions) if for_sessions else ()

    def feed_sessions(self, *inputs: Input | Output) -> None:
        """Feed ``inputs`` to the sessions at the leaders."""
        if self.sessions is not None:
            self.feed(*self._step_sessions(inputs))

    def _step_sessions(self, inputs: Sequence[Input | Output]) -> list[Input]:
        """Step the sessions; return what is for the broker."""
        assert self.sessions is not None
        outputs = self.sessions.step(inputs, self._world.now)
        others = [each for each in outputs if not self._perform_for_sessions(each)]
        return [each for each in others if isinstance(each, Input)]

    def _perform_for_sessions(self, output: Input | Output) -> bool:
        """Execute an output of the sessions; return whether it was not for the broker."""
        match output:
            case SendOnServerLink(link=link, payload=payload):
                if (wire := self._own.get(link)) and wire.up:
                    wire.up.send(payload)
            case CloseServerLink(link=link, reason=reason):
                if wire := self._own.get(link):
                    self._note(f"closes link {link}: {reason}")
                    self.wires.break_link(wire, self)
            case ConnectServer(server=server):
                self.wires.watch(self.name, server, at_once=self._life == 1)
            case SetTimer(key=key, at=at):
                self._set_timer(("sessions", key), at)
            case _:
                return False
        return True

    def _perform(self, output: Output) -> None:
        match output:
            case SendOnLink(link=link, payload=payload):
                self._check_durable(payload)
                if device := self._devices.get(link):
                    device.down.send(payload)
                elif (wire := self._accepted.get(link)) and wire.down:
                    wire.down.send(payload)
            case Append(log=log, entries=entries, urgent=urgent):
                life = self._life
                self.disk.append(log, entries, lambda durable: self._appended(life, log, durable), urgent=urgent)
            case SetTimer(key=key, at=at):
                self._set_timer(("broker", key), at)
            case CancelTimer(key=key):
                self._timers.pop(("broker", key), None)
            case LinkDropped(link=link, reason=reason):
                self._drop(link, reason)

    def _drop(self, link: int, reason: str) -> None:
        if wire := self._accepted.get(link):
            self.problems.append(f"{self.name} drops the link of {wire.source.name}: {reason}")
            self.wires.break_link(wire, self)
        elif device := self._devices.get(link):
            self._world.after(0.0, device.cut)
            self._world.after(0.0, device.on_drop)
            self._world.after(0.0, lambda: self.close(link, reason))

    def _appended(self, life: int, log: str, durable: int) -> None:
        if self.alive and life == self._life:
            self.feed(Appended(log, durable))

    def _set_timer(self, key: tuple[str, Hashable], at: float) -> None:
        token = self._timers[key] = object()

        def fire() -> None:
            if self._timers.get(key) is token:
                del self._timers[key]
                (self.feed if key[0] == "broker" else self.feed_sessions)(TimerFired(key[1]))

        self._world.at(at, fire)

    def _save_later(self, broker: Broker) -> None:
        def save() -> None:
            if broker is self.broker:
                self.disk.save(broker.state.changes(), broker.state.offset)
                self._save_later(broker)

        self._world.after(self._world.random.uniform(0.5, 8.0), save)

    # Links to servers -----------------------------------------------------------------------------------------------

    def link_opened(self, wire: ServerWire) -> None:
        """Report a link that this server has opened."""
        if self.alive:
            self._own[wire.own] = wire
            self._note(f"link {wire.own} to {wire.target.name} opens")
            self.feed_sessions(ServerLinkOpened(wire.own, wire.target.name, is_ours=True))

    def link_accepted(self, wire: ServerWire) -> None:
        """Report a link that another server has opened."""
        if self.alive:
            self._accepted[wire.accepted] = wire
            self.feed(LinkOpened(wire.accepted, server_user(wire.source.name, DOMAIN), "server", is_server=True))

    def link_closed(self, wire: ServerWire, reason: str) -> None:
        """Notice that a link is closed, unless it is known."""
        if self is wire.source and self._own.pop(wire.own, None) is not None:
            self.feed_sessions(ServerLinkClosed(wire.own, wire.target.name, reason))
            self.wires.closed_at_source(wire)
        elif self is wire.target and self._accepted.pop(wire.accepted, None) is not None:
            self.feed(LinkClosed(wire.accepted, reason))

    def arrived(self, wire: ServerWire, payloads: Sequence[bytes]) -> None:
        """Take messages of the other side of a link."""
        if self is wire.source and self._own.get(wire.own) is wire:
            self.feed_sessions(*[ServerMessageReceived(wire.own, wire.target.name, each) for each in payloads])
        elif self is wire.target and self._accepted.get(wire.accepted) is wire:
            self.feed(*[MessageArrived(wire.accepted, each) for each in payloads])

    # Links to devices -----------------------------------------------------------------------------------------------

    def open(
        self, user: str, device: str, delay_s: float, receive: Callable[[int, Sequence[bytes]], None]
    ) -> Wire | None:
        """Open a link to a device, which replaces its earlier one; None while the server is down."""
        if self.broker is None:
            return None
        link = self.next_link()
        if former := self._devices.pop(self._device_links.get((user, device), 0), None):
            former.cut()
        up = Direction(self._world, delay_s, lambda payloads: self._from_device(link, payloads))
        wire = Wire(link, up, Direction(self._world, delay_s, lambda payloads: receive(link, payloads)))
        self._devices[link] = wire
        self._device_links[user, device] = link
        self.feed(LinkOpened(link, user, device))
        return wire

    def close(self, link: int, reason: str) -> None:
        """Report a link to a device as lost, unless it is known already."""
        if self._devices.pop(link, None) is not None:
            self.feed(LinkClosed(link, reason))

    def _from_device(self, link: int, payloads: Sequence[bytes]) -> None:
        self.feed(*[MessageArrived(link, payload) for payload in payloads])

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_durable(self, payload: bytes) -> None:
        """Note an event that is announced before it is durable."""
        match protocol.decode_from_broker(payload):
            case protocol.Notify(id=event) | protocol.NotifyServer(id=event) | protocol.PublishAccepted(id=event):
                if event.origin == self.name and event.number >= self.disk.durable:
                    self.problems.append(f"{event} was announced before it was durable")

    def check_rows(self) -> Iterator[str]:
        """Yield the differences between live state, rows with the rest of the log, and the log alone (DESIGN 5.1)."""
        if self.broker is None:
            return
        live = _rows(self.broker.state)
        for what, state in (("rows and log", self.recovered()), ("log alone", self.recovered(from_log_alone=True))):
            for table, rows in _rows(state).items():
                if rows != live[table]:
                    yield f"{self.name}: the {what} give other {table} than the live state"

    def check_nothing_waits(self) -> Iterator[str]:
        """Yield what is still on its way though all is quiet."""
        if self.broker is None or self.sessions is None:
            return
        for status in self.sessions.statuses():
            if status.waiting_publishes:
                yield f"{self.name} waits for {status.waiting_publishes} answers of {status.leader}"
        forwarding, interest = self.broker._forwarding, self.broker._interest
        if forwarding._waiting or forwarding._request_of or forwarding._bytes_of:
            yield f"{self.name} keeps forwarded events: {forwarding._waiting} {forwarding._bytes_of}"
        if interest._held or self.sessions._pending:
            yield f"{self.name} has subscriptions that do not count: {[*interest._held]} {self.sessions._pending}"

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)


def _rows(state: BrokerState) -> dict[str, dict[str, bytes]]:
    return {table.name: {key: msgspec.json.encode(row) for key, row in table.items()} for table in state.tables}
