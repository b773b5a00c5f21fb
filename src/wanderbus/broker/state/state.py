"""The broker's state: a fold over the records of its log (DESIGN 5.1).

Only ``apply`` changes the state, live and after a restart, so replaying the log restores the state before a crash.
Rows are kept in tables, which report their changes to the state store.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence

from wanderbus import records
from wanderbus.broker.groups.group_rows import GroupMoves
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Queued
from wanderbus.broker.queues.stored_queues import StoredEvents, StoredQueues
from wanderbus.broker.state.advertised_events import AdvertisedEvents
from wanderbus.broker.state.arrived_events import apply_arrivals_lost, apply_arrived
from wanderbus.broker.state.decentralised_state import DecentralisedState
from wanderbus.broker.state.declared_schemas import DeclaredSchemas
from wanderbus.broker.state.device_changes import begin_behind, change_device, forget_redelivered, leave_session
from wanderbus.broker.state.drops import count_dropped, count_restricted, displacing, drop, drop_each, exchange
from wanderbus.broker.state.engine_events import (
    abandon_lives,
    accepted,
    apply_matched,
    begin_life,
    change_life,
    end_life,
    is_waited_for,
)
from wanderbus.broker.state.former_devices import came_back, forget_publishes, remember_publish, remove_device
from wanderbus.broker.state.inheritance import inherit
from wanderbus.broker.state.past_sessions import end_session, next_number
from wanderbus.broker.state.pattern_states import PatternStates, apply_detected
from wanderbus.broker.state.replays import HISTORY_FAILED, apply_replayed, first_of_history, history_of, read_behind
from wanderbus.broker.state.rows import (
    DeviceRow,
    EventRow,
    ExportRow,
    FormerRow,
    LeaderRow,
    PublisherRow,
    RestRow,
    ServerRow,
    SessionRow,
    SettledRow,
    Status,
    SubscriptionRow,
    device_key,
    publisher_key,
    publisher_keys,
    session_key,
)
from wanderbus.broker.state.session_counts import Totals, count_takings
from wanderbus.broker.state.session_moves import AwaitedTable, apply_move
from wanderbus.broker.state.start import apply_events_lost, apply_met, apply_rolled_back, apply_started, readable_as
from wanderbus.broker.state.tables import RowTable, Stored
from wanderbus.epochs import Epochs, epoch_of
from wanderbus.event import EventId
from wanderbus.records import AnyRecord
from wanderbus.subscription import PATTERN

__all__ = [
    "BrokerState",
    "DeviceRow",
    "PublisherRow",
    "SessionRow",
    "Status",
    "SubscriptionRow",
    "device_key",
    "publisher_key",
    "session_key",
]


class BrokerState:
    """The complete state of a broker; the rows are in :mod:`wanderbus.broker.state.rows`."""

    def __init__(self, server: str, publishes_remembered: int) -> None:
        self.server = server
        self.offset = 0  # records below this have been applied
        self.incarnation = 0  # of the log, which it identifies; 0 before its first record
        self.epoch = 0  # the latest one of the log, which the ids of its events have
        self.wall_us = 0
        self._reported_offset = 0
        self.servers: RowTable[ServerRow] = RowTable("servers", ServerRow)
        """One row, for this server."""
        self.servers.put(server, ServerRow())
        self.sessions: RowTable[SessionRow] = RowTable("sessions", SessionRow)
        self.devices: RowTable[DeviceRow] = RowTable("devices", DeviceRow)
        self.publishers: RowTable[PublisherRow] = RowTable("publishers", PublisherRow)
        self.former: RowTable[FormerRow] = RowTable("former", FormerRow)
        """Removed devices by user."""
        self.subscriptions: RowTable[SubscriptionRow] = RowTable("subscriptions", SubscriptionRow)
        self.tombstones: RowTable[SubscriptionRow] = RowTable("tombstones", SubscriptionRow)
        """Subscriptions that have ended and can be renewed (SPEC X21)."""
        self.patterns = PatternStates()
        self.exports: RowTable[ExportRow] = RowTable("exports", ExportRow)
        """Fenced sessions whose next owner may not have them yet."""
        self.rests: RowTable[RestRow] = RowTable("rests", RestRow)
        """Fenced sessions whose next owner may not have all of their queue yet."""
        self.awaited = AwaitedTable()
        """Sessions that are about to move here."""
        self.leaders: RowTable[LeaderRow] = RowTable("leaders", LeaderRow)
        """Position in the session at each other server, by the server's name."""
        self.groups = GroupMoves()
        self.settled: RowTable[SettledRow] = RowTable("settled", SettledRow)
        """Other servers that have the present layout, by name."""
        self.decentralised = DecentralisedState()
        self.schemas = DeclaredSchemas()
        self.advertisements = AdvertisedEvents()
        self.events = StoredEvents()
        self.queue = StoredQueues(self.events, self._settled, lambda key: self.left_for(key) is not None)
        self.queued_bytes = 0  # over all sessions
        self.totals = Totals()
        self.wanting_room: set[str] = set()
        """Sessions whose queues are observed; not part of the stored state."""
        self._relieved: list[str] = []
        """Observed sessions whose queues have lost notifications since; they are observed no further."""
        self._sessions_of: dict[str, list[SessionRow]] = {}
        self.memberless: dict[str, None] = {}
        """Keys of the sessions without devices, which may be over; not part of the stored state."""
        self.publishes_remembered = publishes_remembered

    @property
    def tables(self) -> tuple[Stored, ...]:
        """Return every table, in the order in which they must be loaded."""
        return (
            self.servers,
            self.sessions,
            self.devices,
            self.publishers,
            self.former,
            self.subscriptions,
            self.tombstones,
            self.patterns,
            self.exports,
            self.rests,
            self.awaited,
            self.leaders,
            self.settled,
            self.schemas,
            self.events,
            self.queue,
            *self.decentralised.tables,
            *self.groups.tables,
            self.advertisements,
        )

    def load(self, rows: Mapping[str, Iterable[tuple[str, bytes]]], offset: int) -> None:
        """Load the rows that the store committed together with ``offset``."""
        for table in self.tables:
            table.load(rows.get(table.name, ()))
        own = self.servers[self.server]
        self.wall_us, self.incarnation = own.at_us, own.incarnation
        self.epoch = own.epochs[-1][0] if own.epochs else own.incarnation
        self.decentralised.begin(own)
        for session in self.sessions.values():
            self._sessions_of.setdefault(session.user, []).append(session)
            self.note_members(session)
            self.queued_bytes += session.queued_bytes
            self.queue.grow(session.key, is_growing=bool(session.source))
        self.offset = self._reported_offset = offset

    def begin_totals(self) -> None:
        """Count from here on: what was applied until now is the past of the log."""
        self.totals = Totals()

    def changes(self) -> Mapping[str, Mapping[str, bytes | None]]:
        """Return the rows changed since the last call, by table; they reflect every record below ``offset``."""
        if self.offset > self._reported_offset:
            self.servers.put(self.server, self.servers[self.server])
            self._reported_offset = self.offset
        return {table.name: changed for table in self.tables if (changed := table.changes())}

    def first_needed(self) -> Mapping[str, int]:
        """Return the offset of the first record that is still read, by reader: subscriptions, the matching engine."""
        found = {"subscriptions": first_of_history(self)}
        if is_waited_for(self):
            found["engine"] = self.servers[self.server].engine_next
        return {name: offset for name, offset in found.items() if offset is not None}

    @property
    def next_id(self) -> EventId:
        """Return the id of the event, or of the subscription, whose record is the next one."""
        return EventId(self.server, self.epoch, self.offset)

    def identity(self, offset: int) -> EventId:
        """Return the id of the event, or of the subscription, whose record is at ``offset`` of this log."""
        epochs = self.epochs
        return EventId(self.server, self.epoch if offset >= epochs[-1][1] else epoch_of(epochs, offset), offset)

    @property
    def epochs(self) -> Epochs:
        """Return the epochs of the log, each with its first offset."""
        return self.servers[self.server].epochs or ((self.incarnation, 0),)

    @property
    def is_draining(self) -> bool:
        """Return whether all sessions move to other servers, and new ones begin there."""
        return self.servers[self.server].is_draining

    @property
    def next_subscription(self) -> int:
        """Return the number of the next subscription that is created."""
        return self.servers[self.server].subscriptions + 1

    def sessions_of(self, user: str) -> Sequence[SessionRow]:
        """Return the sessions of a user."""
        return self._sessions_of.get(user, ())

    def has_published(self, user: str, device: str) -> bool:
        """Return whether a device, or its outbox, has published to decentralised channels here."""
        return any(key in self.publishers for key in publisher_keys(user, device, decentralised=True))

    def left_for(self, key: str) -> str | None:
        """Return the server for which something of a session is kept, None if nothing is."""
        left = self.exports.get(key) or self.rests.get(key)
        return None if left is None else left.target

    def queued_for(self, session: SessionRow) -> Collection[str]:
        """Return the subscriptions for which something waits in a session, or may be on its way there."""
        if session.source:
            return (*session.subscriptions, *session.ended)
        queue = self.queue.get(session.key)
        return () if queue is None else queue.queues

    def replace_session(self, session: SessionRow) -> None:
        """Put ``session`` in the place of the session with the same key."""
        of_user = self._sessions_of[session.user]
        of_user[of_user.index(self.sessions[session.key])] = session
        self.sessions.put(session.key, session)
        self.note_members(session)

    def note_members(self, session: SessionRow) -> None:
        """Note whether a session has devices."""
        if session.devices:
            self.memberless.pop(session.key, None)
        else:
            self.memberless[session.key] = None

    def known(self, subscription: str) -> SubscriptionRow | None:
        """Return the row of a subscription, live or ended, None if it is unknown or forgotten."""
        return self.subscriptions.get(subscription) or self.tombstones.get(subscription)

    def _settled(self, subscription: str) -> int | None:
        return None if (row := self.known(subscription)) is None else row.settled

    def apply(self, offset: int, record: AnyRecord) -> None:
        """Change the state by the record at ``offset``; offsets are dense."""
        assert offset == self.offset, (offset, self.offset)
        self.offset = offset + 1
        if record.at_us > self.wall_us:
            self.wall_us = record.at_us
        self.servers[self.server].at_us = self.wall_us
        match record:
            case records.Published():
                self._on_published(offset, record)
                if record.engine:
                    accepted(self, offset)
                if record.causal:
                    self.decentralised.published(record)
            case records.Arrived():
                apply_arrived(self, offset, record)
                if record.engine:
                    accepted(self, offset)
            case records.ArrivalsLost():
                apply_arrivals_lost(self, record)
            case records.CausalChanged(changes=changes, domains=domains):
                self.decentralised.changed(changes, domains, record.at_us)
            case records.RoutesChanged():
                self.decentralised.route(record)
            case records.ServerMet(server=server):
                apply_met(self, server)
            case records.InterestSettled(server=server):
                self.settled.put(server, SettledRow(readable_as(self)))
            case records.Matched():
                apply_matched(self, record)
            case records.Detected():
                apply_detected(self, record)
            case records.Acknowledged():
                self._on_acknowledged(record)
            case records.Dropped():
                session = self.ensure_session(record.user, record.session)
                drop(self, session, record.first, record.last, record.reason, record.subscriptions)
            case records.Subscribed():
                self._on_subscribed(record)
            case records.Changed():
                self._on_changed(record)
            case records.Replayed():
                apply_replayed(self, record)
            case records.Unsubscribed():
                self._on_unsubscribed(record)
            case records.Forgotten():
                self._on_forgotten(record)
            case records.Attached():
                self._on_attached(record)
            case records.DialogStored() | records.StatusChanged():
                change_device(self, record)
            case records.Left():
                self._on_left(record)
            case _ if isinstance(record, records.OfMoves):
                apply_move(self, offset, record)
            case _ if isinstance(record, records.OfGroups):
                self.groups.apply(self, offset, record)
            case records.SchemaDeclared():
                self.schemas.declare(offset, record)
            case records.Started():
                apply_started(self, offset, record)
            case records.RolledBack():
                apply_rolled_back(self, offset, record)
            case records.EventsLost():
                apply_events_lost(self, offset, record)
            case records.Advertised() | records.AdvertisementsCounted() | records.AdvertisementsWithdrawn():
                self.advertisements.apply(record)

    def ensure_session(self, user: str, name: str) -> SessionRow:
        """Return a session, after creating it if needed."""
        key = session_key(user, name)
        if (session := self.sessions.get(key)) is None:
            number, rolled_back = next_number(self, user), self.servers[self.server].rolled_back
            session = SessionRow(user, name, epoch=self.wall_us, next=number, first=number, rolled_back=rolled_back)
            self.sessions.put(key, session)
            self._sessions_of.setdefault(user, []).append(session)
            self.note_members(session)
        return session

    def _on_forgotten(self, record: records.Forgotten) -> None:
        for identity in record.subscriptions:
            self._forget_subscription(identity)
        for user, device in record.devices:
            forget_publishes(self, user, device)
        for user, name in record.sessions:
            end_session(self, user, name)

    def remove_session(self, session: SessionRow) -> None:
        """Remove a session in which nothing waits."""
        self.sessions.drop(session.key)
        self.memberless.pop(session.key, None)
        self._sessions_of[session.user] = [each for each in self._sessions_of[session.user] if each is not session]
        if not self._sessions_of[session.user]:
            del self._sessions_of[session.user]

    # Publishing -------------------------------------------------------------------------------------------------

    def _on_published(self, offset: int, record: records.Published) -> None:
        acceptance, delivery = record.acceptance, record.delivery
        remember_publish(self, acceptance, decentralised=bool(record.causal))
        if delivery.steps:
            self.patterns.take(offset, acceptance.id, record)
        if delivery.restricted:
            count_restricted(self, delivery.restricted)
        if delivery.notified:
            event = EventRow(acceptance.id, record.at_us, bytes(acceptance.event), len(delivery.notified))
            self.events.add(event)
            for notified, leaving, reason in displacing(delivery):
                self.enqueue(notified, event, 0, leaving, reason)
        if delivery.dropped:
            drop_each(self, delivery.dropped)

    def enqueue(
        self, notified: records.Notified, event: EventRow, history_us: int = 0, leaving: int = 0, reason: str = ""
    ) -> None:
        """Add a notification to the queues of its session; ``history_us`` is its time if the event is of the past.

        The notification ``leaving`` then leaves the queues of the same subscriptions because of the bound ``reason``.
        """
        session = self.ensure_session(notified.user, notified.session)
        size, number, subscriptions = len(event.data), notified.number, notified.subscriptions
        if session.epoch < self.epoch:
            session.begin(self.epoch)
        session.next = number + 1
        session.generated += len(subscriptions)
        self.totals.generated += len(subscriptions)
        rows, at_us = self.subscriptions, event.at_us
        for identity in subscriptions:
            # The matching engine also notifies one that has ended since, and in another order than the events came.
            table, row = rows, rows.get(identity)
            if row is None:
                table, row = self.tombstones, self.tombstones[identity]
            if row.last_us is None or row.last_us < at_us:
                row.last_us = at_us
            table.put(identity, row)
        if notified.bound and (strays := session.strays(notified.bound)):
            subscriptions = tuple(each for each in subscriptions if each not in strays)
            count_dropped(self, session, "device_left", len(strays))
        key = session.key
        self.sessions.put(key, session)
        if not subscriptions:
            self.events.release(event)
            return
        bound = tuple(pair for pair in notified.bound if pair[0] in subscriptions) if notified.bound else ()
        queue = self.queue.ensure(key)
        entry = Queued(number, event, subscriptions, bound, history_us=history_us)
        if leaving and exchange(self, session, queue, entry, leaving, reason):
            return
        queue.append(entry)
        session.waiting += 1
        session.change_queued(len(subscriptions), self.wall_us)
        session.queued_bytes += size
        self.queued_bytes += size
        if leaving:
            drop(self, session, leaving, leaving, reason, subscriptions)

    # Leaving the queues -----------------------------------------------------------------------------------------

    def _on_acknowledged(self, record: records.Acknowledged) -> None:
        session = self.ensure_session(record.user, record.session)
        device = self.devices[device_key(record.user, record.device)]
        if (queue := self.queue.get(session.key)) is not None:
            waiting = self.queued_for(session)
            for identity in record.subscriptions or list(queue.reached(record.number)):
                row = self.known(identity)
                if row is not None and identity in waiting:
                    if row.cursors is None:
                        row.cursors = {}
                    if record.number > row.cursors.get(record.device, 0):
                        count_takings(self, session, row, queue.queues.get(identity), record)
                        row.cursors[record.device] = record.number
                    row.taken = max(row.taken, record.number)
                    self._trim(session, queue, row)
            self.sessions.put(session.key, session)
            self.queue.tidy(session.key)
        if device.redelivered is not None:
            forget_redelivered(self, device, record)
        if not record.subscriptions:
            self.devices.put(device_key(record.user, record.device), device.having_taken(record.number))

    def _trim(self, session: SessionRow, queue: SessionQueue, row: SubscriptionRow) -> None:
        """Remove what every target device has acknowledged; without any member the queue waits (SPEC X40)."""
        identity, bound_to, cursors = row.subscription.id, row.subscription.device, row.cursors or {}
        taken: int | None = None
        for device in session.devices:
            if bound_to is None or device == bound_to:
                number = cursors.get(device, 0)
                if taken is None or number < taken:
                    taken = number
        if taken:
            delivered, released = queue.take(identity, taken)
            settled = min(taken, session.arrived) if session.source else taken
            if settled > row.settled:
                row.settled = settled
            session.delivered += delivered
            self.totals.delivered += delivered
            self.settle(session, delivered, released)
        if identity not in queue.queues and not session.source:
            row.cursors = None
        self.put_known(row)

    def _drop_all(self, session: SessionRow, row: SubscriptionRow, reason: str) -> None:
        """Drop everything that waits for a subscription, without a gap, because no device would receive it."""
        if (queue := self.queue.get(session.key)) is not None:
            dropped, released = queue.take(row.subscription.id, session.next)
            count_dropped(self, session, reason, dropped)
            self.settle(session, dropped, released)
            self.queue.tidy(session.key)
        row.settled, row.cursors = max(row.settled, session.here_through), None
        self.put_known(row)

    def take_relieved(self) -> Sequence[str]:
        """Return the observed sessions whose queues have lost notifications since the last call."""
        relieved, self._relieved = self._relieved, []
        return relieved

    def settle(self, session: SessionRow, matches: int, released: Sequence[Queued]) -> None:
        """Count ``matches`` less as queued, and release the notifications that no subscription waits for."""
        session.change_queued(-matches, self.wall_us)
        if session.key in self.wanting_room:
            self.wanting_room.discard(session.key)
            self._relieved.append(session.key)
        for entry in released:
            size = len(entry.event.data)
            session.waiting -= 1
            session.queued_bytes -= size
            self.queued_bytes -= size
            self.events.release(entry.event)
        self.sessions.put(session.key, session)

    def put_known(self, row: SubscriptionRow) -> None:
        """Store the row of a subscription, live or ended."""
        identity = row.subscription.id
        (self.subscriptions if identity in self.subscriptions else self.tombstones).put(identity, row)

    # Subscriptions ----------------------------------------------------------------------------------------------

    def _on_subscribed(self, record: records.Subscribed) -> None:
        subscription = record.subscription
        self.servers[self.server].subscriptions = record.number
        row = SubscriptionRow(subscription, record.number, history=history_of(self, record))
        row.holders = tuple(filter(None, [record.holder]))
        begin_life(row, self.offset)
        self._revive(row)
        if record.inherits is not None and (ended := self.tombstones.get(record.inherits)) is not None:
            inherit(self, row, ended)
        read_behind(self, row)

    def _on_changed(self, record: records.Changed) -> None:
        """Change a subscription; an ended one lives again with its state (SPEC X21)."""
        subscription = record.subscription
        if (row := self.subscriptions.get(subscription.id)) is not None:
            row.holders = row.holders if record.holders is None else record.holders
            change_life(self, row, subscription, record.at_us, self.offset)
            row.subscription = subscription
            self.subscriptions.put(subscription.id, row)
            return
        row = self.tombstones[subscription.id]
        self._drop_tombstone(row)
        row.subscription, row.ended_us, row.reason = subscription, 0, ""
        row.holders = row.holders if record.holders is None else record.holders
        begin_life(row, self.offset)
        self._revive(row)
        read_behind(self, row)

    def _revive(self, row: SubscriptionRow) -> None:
        subscription = row.subscription
        self.subscriptions.put(subscription.id, row)
        if subscription.language == PATTERN:
            self.patterns.begin(subscription)
        session = self.ensure_session(subscription.owner, subscription.session)
        insort(session.subscriptions, subscription.id, key=lambda identity: self.subscriptions[identity].number)
        self.sessions.put(session.key, session)

    def _on_unsubscribed(self, record: records.Unsubscribed) -> None:
        """End the subscription; its queue stays and is delivered (SPEC G-07)."""
        identity = record.subscription
        if (row := self.subscriptions.get(identity)) is None:
            return
        self.subscriptions.drop(identity)
        self.patterns.end(identity)
        row.ended_us, row.reason = record.at_us, record.reason
        end_life(self, row, self.offset - 1)
        if record.reason == HISTORY_FAILED or row.subscription.language == PATTERN:
            row.history = ()
        self.tombstones.put(identity, row)
        session = self.ensure_session(row.subscription.owner, row.subscription.session)
        session.subscriptions.remove(identity)
        session.ended.append(identity)
        self.sessions.put(session.key, session)
        if record.abandoned_by:
            abandon_lives(self, row, record.abandoned_by)

    def _forget_subscription(self, identity: str) -> None:
        if row := self.tombstones.get(identity):
            self._drop_all(self.ensure_session(row.subscription.owner, row.subscription.session), row, "forgotten")
            self._drop_tombstone(row)

    def _drop_tombstone(self, row: SubscriptionRow) -> None:
        self.tombstones.drop(row.subscription.id)
        session = self.ensure_session(row.subscription.owner, row.subscription.session)
        session.ended.remove(row.subscription.id)
        self.sessions.put(session.key, session)

    # Devices ----------------------------------------------------------------------------------------------------

    def _on_attached(self, record: records.Attached) -> None:
        session = self.ensure_session(record.user, record.session)
        key = device_key(record.user, record.device)
        device = self.devices.get(key) or DeviceRow(record.user, record.device, record.session)
        if device.session != record.session:
            leave_session(self, record.user, device.session, record.device)
        if record.device not in session.devices:
            session.devices.append(record.device)
            self.note_members(session)
            device.session, device.redelivered = record.session, dict(record.redelivered) or None
            begin_behind(self, record)
            self.trim_all(session)
        came_back(self, record.user, record.device, record.epoch)
        if device.epoch != record.epoch:
            device.begin_life(record.epoch)
            device.redelivered = dict(record.redelivered) or None
        device.filter_lease_s = record.filter_lease_s
        self.devices.put(key, device)
        self.sessions.put(session.key, session)

    def _on_left(self, record: records.Left) -> None:
        leave_session(self, record.user, record.session, record.device)
        remove_device(self, record)
        self.advertisements.withdraw_device(record.user, record.device)

    def trim_all(self, session: SessionRow) -> None:
        """Remove what no member waits for, after the members of a session have changed (SPEC X40).

        The queue of a subscription bound to a device that is no member is dropped if there are other members.
        """
        queue = self.queue.get(session.key)
        if queue is None or not session.devices:
            return
        for identity in list(queue.queues):
            if (row := self.known(identity)) is None:
                continue
            if row.subscription.device in (None, *session.devices):
                self._trim(session, queue, row)
            else:
                self._drop_all(session, row, "device_left")
        self.queue.tidy(session.key)
