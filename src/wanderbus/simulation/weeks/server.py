"""Simulated broker alone, on a simulated disk, with a wall clock that is sometimes set; links are made on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.messages import (
    Append,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MessageArrived,
    SendOnLink,
    UserStatusChanged,
)
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.state.engine_events import is_waited_for
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.storage import Storage
from wanderbus.simulation.timers import Timers
from wanderbus.simulation.weeks.clock import ClockWatch, WallClock
from wanderbus.simulation.weeks.hook import handled
from wanderbus.simulation.weeks.policy import LATEST, latest
from wanderbus.simulation.weeks.stream import name_of
from wanderbus.simulation.weeks.windows import LOTS, are_lots
from wanderbus.simulation.weeks.wire import Direction, Wire
from wanderbus.simulation.world import World

_HOUR_S: Final = 3_600.0


class Sent(msgspec.Struct, frozen=True):
    """A notification that was sent to a device when the broker's clock showed ``at_us``."""

    at_us: int
    user: str
    device: str
    notify: protocol.Notify
    subscriptions: tuple[str, ...]
    """Subscriptions whose readers it was for."""


class Offered(msgspec.Struct, frozen=True):
    """An event that was offered to the broker, which decided at one of the log's offsets ``first`` to ``last``."""

    event: Event
    first: int
    last: int
    at_us: int
    wall_us: int


class WeeksServer:
    """Starts, crashes and restarts a broker, and records what the log does not contain."""

    def __init__(self, world: World, clock: WallClock, config: BrokerConfig) -> None:
        self.config = config
        self.storage = Storage(world, config, self.feed, save_s=(_HOUR_S, 48 * _HOUR_S))
        self.disk, self.engine = self.storage.disk, self.storage.engine
        self.watch = ClockWatch(config.clock_slew_max)
        self.crashes = 0
        self.broker: Broker | None = None
        self.walls_us: dict[int, int] = {}
        """Wall clock at each decision, by offset of its record."""
        self.sent: list[Sent] = []
        self.offered: dict[str, Offered] = {}
        """Time when each event was last offered, by name."""
        self.offsets: dict[int, int] = {}
        """Next offset of the log when each link was opened, by link."""
        self.problems: list[str] = []
        self._world = world
        self._clock = clock
        self._links = 0
        self._wires: dict[int, Wire] = {}
        self._open: dict[int, tuple[str, str]] = {}
        """User and device of every link that the broker has to regard as open."""
        self._attached: set[int] = set()
        self._statuses: dict[str, str] = {}
        self._timers = Timers(world, lambda key: self.feed(TimerFired(key)))
        self.on_output: Callable[[Output], None] = lambda output: None
        """Called with each output that is not for a link, the disk, the engine or a clock."""
        self._overdue_us: dict[tuple[str, str], int] = {}
        """Absent devices past the grace time, except the last device: the time when that was known."""
        self._over_us: dict[str, int] = {}
        """Sessions that are over: the time when that was known."""

    # Host
    # --------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from the disk."""
        state = self.storage.start()
        self.watch.booted(state.wall_us)
        self.broker = Broker(
            state,
            self.config,
            CustomRestrictions({LOTS: Kind(are_lots)}),
            hook=DisconnectionHook(handled),
            policies=QueuePolicies({LATEST: latest}),
        )
        self._note("starts")
        self.feed(ServerStarted())
        self.storage.save_later(state)

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self.crashes += 1
        self.problems += self.check_rows()
        self.broker = None
        self._timers.clear()
        self._statuses.clear()
        self._attached.clear()
        for wire in self._wires.values():
            wire.cut()
        self._wires.clear()
        self._open.clear()
        self.storage.crash(lose_rows=lose_rows)
        kept = len(self.disk.log)
        self.offered = {uid: offered for uid, offered in self.offered.items() if offered.last <= kept}

    def feed(self, *inputs: Input) -> None:
        """Feed ``inputs`` to the broker, the wall clock first, and perform its outputs."""
        if self.broker is None:
            return
        wall_us = self._clock.read()
        outputs = self.broker.step([ClockRead(wall_us), *inputs], self._world.now)
        self.watch.observe(self._world.now, wall_us, self.broker.state.wall_us)
        for output in outputs:
            self._perform(output, wall_us)

    def _perform(self, output: Output, wall_us: int) -> None:
        match output:
            case SendOnLink(link=link, payload=payload):
                self._send(link, payload)
            case Append(entries=entries):
                self.walls_us.update((offset, wall_us) for offset, _, _ in entries)
                self.storage.perform(output)
            case SetTimer(key=key, at=at):
                self._timers.set(key, at)
            case CancelTimer(key=key):
                self._timers.cancel(key)
            case UserStatusChanged(user=user, status=status):
                self._statuses[user] = status
            case LinkDropped(link=link, reason=reason):
                if wire := self._wires.get(link):
                    wire.cut()
                    wire.on_drop()
                    self.close(link, reason)
            case _ if not self.storage.perform(output):
                self.on_output(output)

    # Links -----------------------------------------------------------------------------------------------------

    def open(
        self, user: str, device: str, delay_s: float, receive: Callable[[int, Sequence[bytes]], None]
    ) -> Wire | None:
        """Open a link to a device, which replaces its earlier one; None while the server is down."""
        if self.broker is None:
            return None
        self._links += 1
        link = self._links
        up = Direction(self._world, delay_s, lambda payloads: self._arrived(link, payloads))
        wire = Wire(link, up, Direction(self._world, delay_s, lambda payloads: receive(link, payloads)))
        for other, whose in list(self._open.items()):
            if whose == (user, device):
                del self._open[other]
                self._wires.pop(other).cut()
        self._open[link] = user, device
        self._wires[link] = wire
        self.offsets[link] = self.broker.state.offset
        self._note(f"link {link} opens to {user}/{device}")
        self.feed(LinkOpened(link, user, device))
        return wire

    def close(self, link: int, reason: str) -> None:
        """Report a link as lost, unless it is known already."""
        if self._wires.pop(link, None) is not None:
            self._open.pop(link, None)
            self._note(f"link {link} closes: {reason}")
            self.feed(LinkClosed(link, reason))

    def _arrived(self, link: int, payloads: Sequence[bytes]) -> None:
        if self.broker is None:
            return
        state, events, first = self.broker.state, [], self.broker.state.offset
        for payload in payloads:
            match protocol.decode_from_agent(payload):
                case protocol.Attach():
                    self._attached.add(link)
                case protocol.Leave() if link in self._attached:
                    self._open.pop(link, None)
                case protocol.Publish(event=event):
                    events.append(event)
        self.feed(*[MessageArrived(link, payload) for payload in payloads])
        for event in events:
            self.offered[name_of(event)] = Offered(event, first, state.offset, state.wall_us, self._clock.read())

    def _send(self, link: int, payload: bytes) -> None:
        match protocol.decode_from_broker(payload):
            case protocol.Notify(id=identity) as notify:
                if opened := self._open.get(link):
                    assert self.broker is not None
                    read = self.broker.readers(link)
                    subscriptions = tuple(read[handle] for handle in notify.readers if handle in read)
                    self.sent.append(Sent(self.broker.state.wall_us, *opened, notify, subscriptions))
                self._check_durable(identity.number)
            case protocol.PublishAccepted(id=identity):
                self._check_durable(identity.number)
        if wire := self._wires.get(link):
            wire.down.send(payload)

    def _check_durable(self, offset: int) -> None:
        if offset >= self.disk.durable:
            self.problems.append(f"event {offset} was announced before it was durable")

    def _note(self, what: str) -> None:
        self._world.note("server", what)

    # Checks at any moment
    # ----------------------------------------------------------------------------------------------

    def check_now(self) -> Iterator[str]:
        """Yield the inconsistencies of the live broker."""
        if self.broker is None:
            return
        state = self.broker.state
        for row in state.sessions.values():
            if row.generated != row.delivered + row.queued + sum(row.dropped.values()):
                yield f"{row.key} does not add up: {row}"
        yield from self._check_overdue(state)
        yield from self._check_readers(self.broker)
        there = set(self._open.values())
        for device in state.devices.values():
            if (device.status == "CONNECTED") != ((device.user, device.device) in there):
                yield f"{device.user}/{device.device} is {device.status}"
        for user in sorted({row.user for row in state.devices.values()}):
            expected = "CONNECTED" if any(user == of for of, _ in there) else "DISCONNECTED"
            if self.broker.status(user) != expected:
                yield f"{user} is {self.broker.status(user)}, it should be {expected}"

    def _check_readers(self, broker: Broker) -> Iterator[str]:
        """Yield the readers with room that receive nothing, and those whose window exceeds its bound."""
        for link, reader in broker.diagnostics.unserved():
            yield f"{reader.subscription} is read on {link.user}/{link.device} and not sent, though it has room"
        for link, reader in broker.diagnostics.readers():
            if len(reader.unacknowledged or ()) > self.config.unacknowledged_max:
                yield f"more than a window of {reader.subscription} is on its way to {link.user}/{link.device}"

    def _check_overdue(self, state: BrokerState) -> Iterator[str]:
        """Yield the devices that should have left their sessions because they are away for too long (SPEC X40)."""
        before = self._overdue_us
        self._overdue_us = {}
        for row in state.devices.values():
            grace_us = 1e6 * (self.config.device_grace_s if row.grace_s is None else row.grace_s)
            session = state.sessions.get(session_key(row.user, row.session))
            away_us = 0 if row.away_since_us is None else state.wall_us - row.away_since_us
            if away_us > grace_us and (session is None or len(session.devices) > 1 or not _is_needed(state, session)):
                key = (row.user, row.device)
                since_us = self._overdue_us[key] = before.get(key, state.wall_us)
                if state.wall_us - since_us > 1.2 * grace_us:
                    yield f"{key} is away for {away_us / 1e6:.0f} s and still a member"
        if self.config.sweep_s is not None:
            yield from self._check_over(state)

    def _check_over(self, state: BrokerState) -> Iterator[str]:
        """Yield the sessions that are over and still there."""
        before = self._over_us
        self._over_us = {}
        for row in state.sessions.values():
            if not row.devices and not row.ended and not row.is_fenced and not _is_needed(state, row):
                since_us = self._over_us[row.key] = before.get(row.key, state.wall_us)
                if state.wall_us - since_us > 1.2e6 * (self.config.sweep_s or 0.0):
                    yield f"{row.key} is over and still there"

    def check_reported(self) -> Iterator[str]:
        """Yield the users whose last reported status is wrong; no report may be in flight."""
        if self.broker is not None:
            for user, status in self._statuses.items():
                if status != self.broker.status(user):
                    yield f"{user} is {self.broker.status(user)}, it was reported {status}"

    def check_rows(self) -> Iterator[str]:
        """Yield the differences between live state, rows with the rest of the log, and the log alone (DESIGN 5.1)."""
        if self.broker is None:
            return
        yield from self.storage.check_rows(self.broker.state)


def _is_needed(state: BrokerState, session: SessionRow) -> bool:
    """Return whether a session has a live subscription, or a notification that waits or may still come."""
    if session.subscriptions or session.waiting:
        return True
    engine_next = state.servers[state.server].engine_next
    former = (life for identity in session.ended for life in state.tombstones[identity].former)
    return is_waited_for(state) and any(life.end > engine_next for life in former)
