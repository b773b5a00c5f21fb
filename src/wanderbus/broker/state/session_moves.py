"""Records of a session that moves to another server, applied to the state (SPEC L-01; DESIGN 5.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wanderbus import records
from wanderbus.broker.queues.stored_blocks import QueuePiece
from wanderbus.broker.state.drops import lose
from wanderbus.broker.state.exported_session import (
    decode_export,
    decode_piece,
    decode_publishers,
    encode_export,
    export_session,
)
from wanderbus.broker.state.former_devices import came_back, forget_publishes, keep_lease, move_publishes
from wanderbus.broker.state.inheritance import inherited
from wanderbus.broker.state.replays import continued, handed_over
from wanderbus.broker.state.rows import (
    AwaitedRow,
    ExportRow,
    PublisherRow,
    RestRow,
    SessionRow,
    device_key,
    publisher_key,
    session_key,
)
from wanderbus.broker.state.tables import RowTable

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


class AwaitedTable(RowTable[AwaitedRow]):
    """Sessions that are about to move here, found by their subscriptions, and counted by their source."""

    def __init__(self) -> None:
        super().__init__("awaited", AwaitedRow)
        self._keys: dict[str, str] = {}
        """Key of the session of each subscription."""
        self._of_source: Counter[str] = Counter()

    def put(self, key: str, row: AwaitedRow) -> None:
        self._forget(key)
        super().put(key, row)
        self._note(key, row)

    def drop(self, key: str) -> None:
        self._forget(key)
        super().drop(key)

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        super().load(rows)
        for key, row in self.items():
            self._note(key, row)

    def session_with(self, subscription: str) -> str | None:
        """Return the key of the session that a subscription comes with, None if none does."""
        return self._keys.get(subscription)

    def count_from(self, source: str) -> int:
        """Return how many sessions come from a server."""
        return self._of_source[source]

    def count_from_domain(self, domain: str) -> int:
        """Return how many sessions come from servers of another domain."""
        return sum(count for source, count in self._of_source.items() if source.startswith(f"{domain}/"))

    def _note(self, key: str, row: AwaitedRow) -> None:
        self._of_source[row.source] += 1
        self._keys |= {each.id: key for each in row.subscriptions}

    def _forget(self, key: str) -> None:
        if (row := self.get(key)) is not None:
            self._of_source[row.source] -= 1
            if not self._of_source[row.source]:
                del self._of_source[row.source]
            for each in row.subscriptions:
                self._keys.pop(each.id, None)


def apply_move(state: BrokerState, offset: int, record: records.OfMoves) -> None:
    """Apply a record about a session that moves, at ``offset``."""
    match record:
        case records.SessionFenced():
            _fence_session(state, record)
        case records.ExportTaken():
            _take_export(state, record)
        case records.ExportDropped(user=user, session=session):
            _drop_export(state, session_key(user, session))
        case records.DrainingChanged(is_draining=is_draining):
            server = state.servers[state.server]
            server.is_draining = is_draining
            state.servers.put(state.server, server)
        case records.SessionAwaited():
            _await_session(state, offset, record)
        case records.SessionNotAwaited(user=user, session=session):
            state.awaited.drop(session_key(user, session))
        case records.SessionImported():
            _import_session(state, record)
        case records.QueueContinued():
            _continue_queue(state, record)
        case records.DeviceCame():
            _take_publishes(state, record)
        case records.DeviceGone(user=user, device=device, server=server):
            _go(state, device_key(user, device), server)


def _fence_session(state: BrokerState, record: records.SessionFenced) -> None:
    """Turn the rows of a session into its export, and leave an empty session that is fenced."""
    session = state.ensure_session(record.user, record.session)
    answers = None if record.answers is None else decode_publishers(record.answers)
    exported = export_session(
        state, record.user, record.session, record.owner_epoch, record.cuts, record.queue_bytes, answers
    )
    state.exports.put(session.key, ExportRow(encode_export(exported), record.target))
    if exported.through:
        state.queue.leave(session.key)
        state.queue.forget_left(session.key, exported.through)
        state.queued_bytes -= session.queued_bytes
    else:
        _remove_queue(state, session)
    for identity in (*session.subscriptions, *session.ended):
        state.subscriptions.drop(identity)
        state.patterns.end(identity)
        state.tombstones.drop(identity)
    for device in session.devices:
        _remove_device(state, record.user, device, record.at_us)
        (move_publishes if record.cuts else forget_publishes)(state, record.user, device)
    state.replace_session(
        SessionRow(
            session.user,
            session.name,
            session.epoch,
            record.owner_epoch,
            is_fenced=True,
            next_owner=record.target,
        )
    )


def _take_export(state: BrokerState, record: records.ExportTaken) -> None:
    """Keep of a fenced session no more than the part of its queue that the next owner has not."""
    key = session_key(record.user, record.session)
    if (export := state.exports.get(key)) is not None:
        state.exports.drop(key)
        state.rests.put(key, RestRow(export.target))
    state.queue.forget_left(key, record.through)


def _drop_export(state: BrokerState, key: str) -> None:
    """Forget what was kept of a fenced session."""
    state.exports.drop(key)
    state.rests.drop(key)
    state.queue.forget_left(key)


def _await_session(state: BrokerState, offset: int, record: records.SessionAwaited) -> None:
    """Note a session that is about to move here, or its present subscriptions."""
    key = session_key(record.user, record.session)
    before = state.awaited.get(key)
    is_known = before is not None and (before.owner_epoch, before.source) == (record.owner_epoch, record.source)
    first = before.first if before is not None and is_known else offset
    state.awaited.put(key, AwaitedRow(record.owner_epoch, record.source, first, record.subscriptions))


def _import_session(state: BrokerState, record: records.SessionImported) -> None:
    """Add the rows of an exported session; its subscriptions get the next numbers, in their order."""
    exported = decode_export(record.export)
    session = exported.session
    awaited = state.awaited.get(session.key)
    state.awaited.drop(session.key)
    _drop_export(state, session.key)  # a later owner had all of it before
    for member in state.ensure_session(record.user, record.session).devices:
        _remove_device(state, record.user, member, record.at_us)
    state.replace_session(session)
    server, ended = state.servers[state.server], {row.subscription.id for row in exported.ended}
    # The epochs of two servers are not in one order.
    session.begin(max(session.epoch + 1, state.epoch))
    session.rolled_back = server.rolled_back
    if exported.through:
        session.source, session.arrived = exported.source, exported.through
        state.queue.grow(session.key, is_growing=True)
    for row in sorted((*exported.subscriptions, *exported.ended), key=lambda row: row.number):
        server.subscriptions += 1
        row.number = server.subscriptions
        identity = row.subscription.id
        if exported.cuts and awaited is not None and identity not in ended:
            handed_over(state, row, exported.cuts, awaited.first)
        else:
            continued(state, row)
        (state.tombstones if identity in ended else state.subscriptions).put(identity, row)
    for identity, pattern in exported.patterns.items():
        state.patterns.take_over(identity, pattern)
        if state.subscriptions[identity].history:
            state.patterns.read_log(identity)
    for device in exported.devices:
        if device.status == "CONNECTED":
            device.status, device.away_since_us = "DISCONNECTED", record.at_us
        if device.gone_to == state.server:
            device.gone_to = ""
        state.devices.put(device_key(device.user, device.device), device)
        came_back(state, device.user, device.device, device.epoch)
    for advertisement in exported.advertisements:
        state.advertisements.add(advertisement)
    for publisher in exported.publishers:
        device_of = device_key(session.user, publisher.device)
        key = publisher_key(device_of, outbox=publisher.outbox, decentralised=publisher.decentralised)
        _add_publisher(state, key, publisher.row)
    added = state.queue.take_over(session.key, QueuePiece(blocks=exported.blocks, events=exported.events))
    session.waiting, session.queued = len(added), sum(each.waiting for each in added)
    session.queued_bytes = sum(len(each.event.data) for each in added)
    state.queued_bytes += session.queued_bytes


def _continue_queue(state: BrokerState, record: records.QueueContinued) -> None:
    """Add the next piece to the queue of an imported session; the last one completes the session."""
    piece, session = decode_piece(record.export), state.sessions[session_key(record.user, record.session)]
    added = state.queue.take_over(session.key, inherited(state, piece))
    matches, size = sum(each.waiting for each in added), sum(len(each.event.data) for each in added)
    session.waiting += len(added)
    session.generated += matches
    session.change_queued(matches, record.at_us)
    session.queued_bytes += size
    state.queued_bytes += size
    session.arrived = piece.through
    state.trim_all(session)
    if piece.is_last:
        session.source, session.arrived = "", 0
        state.queue.grow(session.key, is_growing=False)
        _forget_cursors(state, session)
        owed, session.owed = session.owed, []
        for gap in owed:
            lose(state, gap)
    state.sessions.put(session.key, session)


def _take_publishes(state: BrokerState, record: records.DeviceCame) -> None:
    """Add what another server knows of the publishes of a device, which has come from there."""
    for key, row in (decode_publishers(record.publishers) if record.publishers else {}).items():
        _add_publisher(state, key, row)
    _go(state, device_key(record.user, record.device), record.following)


def _add_publisher(state: BrokerState, key: str, row: PublisherRow) -> None:
    known = state.publishers.get(key)
    state.publishers.put(key, row if known is None else known.merged(row))


def _go(state: BrokerState, key: str, server: str) -> None:
    """Note where a device is now."""
    if (row := state.devices.get(key)) is not None:
        row.gone_to = server
        state.devices.put(key, row)


def _remove_device(state: BrokerState, user: str, device: str, at_us: int) -> None:
    """Remove a device that comes back when it calls again."""
    keep_lease(state, state.devices[device_key(user, device)], at_us)
    state.devices.drop(device_key(user, device))
    state.advertisements.withdraw_device(user, device)


def _remove_queue(state: BrokerState, session: SessionRow) -> None:
    if (queue := state.queue.get(session.key)) is None:
        return
    for identity in list(queue.queues):
        _, released = queue.take(identity, session.next)
        state.settle(session, 0, released)
    state.queue.tidy(session.key)


def _forget_cursors(state: BrokerState, session: SessionRow) -> None:
    """Forget the cursors of the subscriptions for which nothing waits."""
    waiting = state.queued_for(session)
    for identity in (*session.subscriptions, *session.ended):
        row = state.known(identity)
        if row is not None and row.cursors is not None and identity not in waiting:
            row.cursors = None
            state.put_known(row)
