"""The broker's state: a fold over the records of its log (DESIGN 5.1).

``apply`` is the only way the state changes, live and after a restart alike, so replaying the log gives the
state that the crash interrupted. Rows are kept in :class:`Table`, which tells the state store what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from wanderbus import records
from wanderbus.broker import protocol
from wanderbus.broker.tables import Table
from wanderbus.event import EventId
from wanderbus.records import AnyRecord
from wanderbus.subscription import Subscription

Status = Literal["CONNECTED", "DISCONNECTED"]


class SessionRow(msgspec.Struct):
    """A user's named session: its stream's epoch, the numbers in use, and who is a member."""

    user: str
    name: str
    epoch: int
    """When the stream began, µs since the Unix epoch: a broker that lost everything begins another one."""
    first: int = 1
    """Lowest number still in the queue; ``next`` when the queue is empty."""
    next: int = 1
    """Number of the next notification."""
    waiting: int = 0
    """Notifications in the queue, gap markers not counted."""
    devices: list[str] = msgspec.field(default_factory=list)
    subscriptions: list[str] = msgspec.field(default_factory=list)

    @property
    def key(self) -> str:
        """Return the key of this row."""
        return session_key(self.user, self.name)


class DeviceRow(msgspec.Struct):
    """A device of a user: how far its application has taken, and how it can be reached."""

    user: str
    device: str
    session: str
    epoch: int = 0
    cursor: int = 0
    redelivered_through: int = 0
    status: Status = "DISCONNECTED"
    away_since_us: int | None = None
    binding: bytes | None = None


class PublisherRow(msgspec.Struct):
    """What a device has published in its present epoch: highest number, and the offsets of the recent ones."""

    epoch: int
    number: int = 0
    recent: dict[int, int] = msgspec.field(default_factory=dict)


class SubscriptionRow(msgspec.Struct):
    """A subscription, and when it last generated a notification (SPEC H-11)."""

    subscription: Subscription
    last_us: int | None = None
    waiting: int = 0


class Entry(msgspec.Struct):
    """One place in a session's queue: a notification, or a gap from ``number`` to ``last`` with its ``reason``."""

    number: int
    last: int
    event: bytes = b""
    id: EventId | None = None
    subscriptions: tuple[str, ...] = ()
    bound: tuple[tuple[str, str], ...] = ()
    at_us: int = 0
    reason: str | None = None

    def subscriptions_for(self, device: str) -> tuple[str, ...]:
        """Return the subscriptions that this notification is for on ``device`` (SPEC E-05)."""
        if not self.bound:
            return self.subscriptions
        elsewhere = {subscription for subscription, bound_to in self.bound if bound_to != device}
        return tuple(s for s in self.subscriptions if s not in elsewhere)


def session_key(user: str, name: str) -> str:
    """Return the key of a session; names hold no slash, so the last one parts the two."""
    return f"{user}/{name}"


def device_key(user: str, device: str) -> str:
    """Return the key of a device."""
    return f"{user}/{device}"


class BrokerState:
    """All that a broker remembers; see the rows above."""

    def __init__(self, server: str, publishes_remembered: int) -> None:
        self.server = server
        self.offset = 0
        """Records below this have been applied."""
        self.wall_us = 0
        self.sessions: Table[SessionRow] = Table("sessions", SessionRow)
        self.devices: Table[DeviceRow] = Table("devices", DeviceRow)
        self.publishers: Table[PublisherRow] = Table("publishers", PublisherRow)
        self.subscriptions: Table[SubscriptionRow] = Table("subscriptions", SubscriptionRow)
        self.queue: Table[Entry] = Table("queue", Entry)
        self._publishes_remembered = publishes_remembered

    @property
    def tables(self) -> tuple[Table[SessionRow], ...]:
        """Return every table, for the store."""
        tables = (
            self.sessions,
            self.devices,
            self.publishers,
            self.subscriptions,
            self.queue,
        )
        return tables  # type: ignore[return-value]

    def load(self, rows: Mapping[str, Iterable[tuple[str, bytes]]], offset: int) -> None:
        """Take over what the store committed together with ``offset``."""
        for table in self.tables:
            table.load(rows.get(table.name, ()))
        self.offset = offset

    def changes(self) -> Mapping[str, Mapping[str, bytes | None]]:
        """Return what changed since the last call, by table; it reflects every record below ``offset``."""
        return {table.name: changed for table in self.tables if (changed := table.changes())}

    def entry(self, session: SessionRow, number: int) -> Entry | None:
        """Return the queue entry that covers ``number``, be it a notification or a gap."""
        found = self.queue.get(f"{session.key}/{number}")
        if found is None and (head := self.queue.get(f"{session.key}/{session.first}")) and number <= head.last:
            return head
        return found

    def apply(self, offset: int, record: AnyRecord) -> None:
        """Change the state by the record at ``offset``; offsets are dense."""
        assert offset == self.offset, (offset, self.offset)
        self.offset = offset + 1
        self.wall_us = max(self.wall_us, record.at_us)
        match record:
            case records.Published():
                self._published(offset, record)
            case records.Took():
                self._took(record)
            case records.Dropped():
                self._dropped(record)
            case records.Subscribed(subscription=subscription):
                self.subscriptions.put(subscription.id, SubscriptionRow(subscription))
                session = self._session(subscription.owner, subscription.session)
                session.subscriptions.append(subscription.id)
                self.sessions.put(session.key, session)
            case records.Changed(subscription=subscription):
                row = self.subscriptions[subscription.id]
                row.subscription = subscription
                self.subscriptions.put(subscription.id, row)
            case records.Unsubscribed(subscription=identity):
                self._unsubscribed(identity)
            case records.Forgotten():
                pass
            case records.Attached():
                self._attached(record)
            case records.Bound() | records.StatusChanged():
                self._reached(record)
            case records.Left():
                self._left(record)
            case records.Started():
                self._started(record)

    def _session(self, user: str, name: str) -> SessionRow:
        key = session_key(user, name)
        if (session := self.sessions.get(key)) is None:
            session = SessionRow(user, name, epoch=self.wall_us)
            self.sessions.put(key, session)
        return session

    def _published(self, offset: int, record: records.Published) -> None:
        key = device_key(record.user, record.device)
        publisher = self.publishers.get(key)
        if publisher is None or publisher.epoch != record.epoch:
            publisher = PublisherRow(record.epoch)
        publisher.number = record.number
        publisher.recent[record.number] = offset
        while len(publisher.recent) > self._publishes_remembered:
            del publisher.recent[next(iter(publisher.recent))]
        self.publishers.put(key, publisher)
        event = protocol.encode_event(record.event) if record.notified else b""
        for notified in record.notified:
            session = self._session(notified.user, notified.session)
            entry = Entry(
                notified.number,
                notified.number,
                event,
                EventId(self.server, offset),
                notified.subscriptions,
                notified.bound,
                record.at_us,
            )
            self.queue.put(f"{session.key}/{notified.number}", entry)
            session.next = notified.number + 1
            session.waiting += 1
            self.sessions.put(session.key, session)
            for identity in notified.subscriptions:
                row = self.subscriptions[identity]
                row.last_us = record.at_us
                row.waiting += 1
                self.subscriptions.put(identity, row)

    def _took(self, record: records.Took) -> None:
        key = device_key(record.user, record.device)
        device = self.devices[key]
        device.cursor = max(device.cursor, record.number)
        self.devices.put(key, device)
        self._trim(self._session(record.user, record.session))

    def _trim(self, session: SessionRow) -> None:
        """Remove what every member has taken; with no member at all the queue waits (SPEC X40)."""
        if not session.devices:
            return
        taken = min(self.devices[device_key(session.user, device)].cursor for device in session.devices)
        number = session.first
        while number <= taken and number < session.next:
            entry = self.queue[f"{session.key}/{number}"]
            if entry.last > taken:
                break
            self._remove(session, entry)
            number = entry.last + 1
        session.first = number
        self.sessions.put(session.key, session)

    def _remove(self, session: SessionRow, entry: Entry) -> None:
        self.queue.drop(f"{session.key}/{entry.number}")
        if entry.reason is None:
            session.waiting -= 1
            for identity in entry.subscriptions:
                if row := self.subscriptions.get(identity):
                    row.waiting -= 1
                    self.subscriptions.put(identity, row)

    def _dropped(self, record: records.Dropped) -> None:
        """Put a gap in place of the entries; a gap at the head of the queue grows instead of lining up."""
        session = self._session(record.user, record.session)
        number = record.first
        while number <= record.last:
            entry = self.queue[f"{session.key}/{number}"]
            self._remove(session, entry)
            number = entry.last + 1
        gap = Entry(record.first, record.last, reason=record.reason, at_us=record.at_us)
        head = self.queue.get(f"{session.key}/{session.first}")
        if head and head.reason == record.reason and head.last + 1 == record.first:
            gap.number = head.number
        self.queue.put(f"{session.key}/{gap.number}", gap)
        self.sessions.put(session.key, session)

    def _unsubscribed(self, identity: str) -> None:
        """Forget the subscription; what it has queued stays and is delivered (SPEC G-07)."""
        if (row := self.subscriptions.get(identity)) is None:
            return
        self.subscriptions.drop(identity)
        session = self._session(row.subscription.owner, row.subscription.session)
        session.subscriptions.remove(identity)
        self.sessions.put(session.key, session)

    def _attached(self, record: records.Attached) -> None:
        session = self._session(record.user, record.session)
        key = device_key(record.user, record.device)
        device = self.devices.get(key) or DeviceRow(record.user, record.device, record.session)
        if device.session != record.session:
            self._leave_session(record.user, device.session, record.device)
        if record.device not in session.devices:
            session.devices.append(record.device)
            device.session, device.cursor = record.session, session.first - 1
        device.epoch = record.epoch
        device.redelivered_through = record.redelivered_through
        self.devices.put(key, device)
        self.sessions.put(session.key, session)

    def _reached(self, record: records.Bound | records.StatusChanged) -> None:
        key = device_key(record.user, record.device)
        device = self.devices.get(key) or DeviceRow(record.user, record.device, "")
        if isinstance(record, records.Bound):
            device.binding = record.binding
        else:
            device.status = "CONNECTED" if record.status == "CONNECTED" else "DISCONNECTED"
            device.away_since_us = None if device.status == "CONNECTED" else record.at_us
        self.devices.put(key, device)

    def _left(self, record: records.Left) -> None:
        self._leave_session(record.user, record.session, record.device)
        self.devices.drop(device_key(record.user, record.device))
        self.publishers.drop(device_key(record.user, record.device))

    def _leave_session(self, user: str, name: str, device: str) -> None:
        """End a membership: a device is in one session at a time, its cursor counts in the numbers of that one."""
        session = self.sessions.get(session_key(user, name))
        if session is not None and device in session.devices:
            session.devices.remove(device)
            self.sessions.put(session.key, session)
            self._trim(session)

    def _started(self, record: records.Started) -> None:
        """A server that starts has no link to anyone yet."""
        for key, device in list(self.devices.items()):
            if device.status == "CONNECTED":
                device.status, device.away_since_us = "DISCONNECTED", record.at_us
                self.devices.put(key, device)
