"""Simulated broker alone, on a simulated disk, with a wall clock that is sometimes set; links are made on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.messages import UserStatusChanged
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.state.engine_events import is_waited_for
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event
from wanderbus.machine import Input, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.broker_host import BrokerHost
from wanderbus.simulation.weeks.clock import ClockWatch, WallClock
from wanderbus.simulation.weeks.hook import handled
from wanderbus.simulation.weeks.policy import LATEST, latest
from wanderbus.simulation.weeks.stream import name_of
from wanderbus.simulation.weeks.windows import LOTS, are_lots
from wanderbus.simulation.wire import Wire
from wanderbus.simulation.world import World

_HOUR_S: Final = 3_600.0


class SentNotification(msgspec.Struct, frozen=True):
    """A notification that was sent to a device when the broker's clock showed ``at_us``."""

    at_us: int
    user: str
    device: str
    notify: protocol.Notify
    subscriptions: tuple[str, ...]
    """Subscriptions whose readers it was for."""


class OfferedEvent(msgspec.Struct, frozen=True):
    """An event that was offered to the broker, which decided at one of the log's offsets ``first`` to ``last``."""

    event: Event
    first: int
    last: int
    at_us: int
    wall_us: int


class WeeksServer(BrokerHost):
    """A broker that crashes and starts again, with a record of what its log does not contain."""

    def __init__(self, world: World, clock: WallClock, config: BrokerConfig) -> None:
        super().__init__(world, config, save_s=(_HOUR_S, 48 * _HOUR_S))
        self.watch = ClockWatch(config.clock_slew_max)
        self.sent: list[SentNotification] = []
        self.offered: dict[str, OfferedEvent] = {}
        """Time when each event was last offered, by name."""
        self.offsets: dict[int, int] = {}
        """Next offset of the log when each link was opened, by link."""
        self.on_output: Callable[[Output], None] = lambda output: None
        """Called with each output that is not for a link, the disk, the engine or a clock."""
        self._clock = clock
        self._attached: set[int] = set()
        self._statuses: dict[str, str] = {}
        self._overdue_us: dict[tuple[str, str], int] = {}
        """Absent devices past the grace time, except the last device: the time when that was known."""
        self._over_us: dict[str, int] = {}
        """Sessions that are over: the time when that was known."""

    @property
    def wall_us(self) -> int:
        """Return the wall clock of the server."""
        return self._clock.read()

    def _boot(self, state: BrokerState) -> None:
        self.watch.booted(state.wall_us)
        self.broker = Broker(
            state,
            self.config,
            CustomRestrictions({LOTS: Kind(are_lots)}),
            hook=DisconnectionHook(handled),
            policies=QueuePolicies({LATEST: latest}),
        )
        self.feed(ServerStarted())

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self._statuses.clear()
        self._attached.clear()
        super().crash(lose_rows=lose_rows)
        kept = len(self.disk.log)
        self.offered = {uid: offered for uid, offered in self.offered.items() if offered.last <= kept}

    def _step(self, inputs: Sequence[Input]) -> None:
        outputs = self.broker.step(inputs, self._world.now)
        self.watch.observe(self._world.now, self.wall_us, self.broker.state.wall_us)
        for output in outputs:
            self._perform(output)

    def _report(self, output: Output) -> None:
        if isinstance(output, UserStatusChanged):
            self._statuses[output.user] = output.status
        else:
            self.on_output(output)

    # Links ----------------------------------------------------------------------------------------------------------

    def open(
        self, user: str, device: str, delay_s: float, receive: Callable[[int, Sequence[bytes]], None]
    ) -> Wire | None:
        """Open a link to a device, which replaces its earlier one; None while the server is down."""
        offset = self.broker.state.offset if self.alive else 0
        wire = super().open(user, device, delay_s, receive)
        if wire is not None:
            self.offsets[wire.link] = offset
        return wire

    def _arrived(self, link: int, payloads: Sequence[bytes]) -> None:
        if not self.alive:
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
        super()._arrived(link, payloads)
        for event in events:
            self.offered[name_of(event)] = OfferedEvent(event, first, state.offset, state.wall_us, self._clock.read())

    def _send(self, link: int, payload: bytes) -> None:
        notify = protocol.decode_from_broker(payload)
        if isinstance(notify, protocol.Notify) and (opened := self._open.get(link)):
            read = self.broker.readers(link)
            subscriptions = tuple(read[handle] for handle in notify.readers if handle in read)
            self.sent.append(SentNotification(self.broker.state.wall_us, *opened, notify, subscriptions))
        super()._send(link, payload)

    # Checks at any moment
    # ----------------------------------------------------------------------------------------------

    def check_now(self) -> Iterator[str]:
        """Yield the inconsistencies of the live broker."""
        if not self.alive:
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
        if self.alive:
            for user, status in self._statuses.items():
                if status != self.broker.status(user):
                    yield f"{user} is {self.broker.status(user)}, it was reported {status}"


def _is_needed(state: BrokerState, session: SessionRow) -> bool:
    """Return whether a session has a live subscription, or a notification that waits or may still come."""
    if session.subscriptions or session.waiting:
        return True
    engine_next = state.servers[state.server].engine_next
    former = (life for identity in session.ended for life in state.tombstones[identity].former)
    return is_waited_for(state) and any(life.end > engine_next for life in former)
