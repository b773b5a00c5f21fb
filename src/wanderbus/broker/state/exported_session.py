"""A whole session as one value, to be moved to another server (SPEC L-01; DESIGN 5.3).

It has everything that the session needs to go on as if it had not moved: its subscriptions with their lifetimes and
the times that restrictions compare, its devices with their cursors, its queues, and the publishes of its devices that
are recognised when they are repeated. The SIP dialogs of the devices stay: a device begins another one elsewhere.

Instants are those of the source's clock. The servers of a domain keep the same time, so an expiry remains the instant
that the agent knows, and a transfer does not extend a lifetime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus.broker.queues.left_queue import COUNT_MAX, counted, cut
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.stored_blocks import Block, QueuePiece
from wanderbus.broker.state.decentralised_state import encode_past
from wanderbus.broker.state.replays import closed
from wanderbus.broker.state.rows import (
    FORMER_EPOCHS_MAX,
    AdvertisementRow,
    DeviceRow,
    EventRow,
    PatternRow,
    PublisherRow,
    SessionRow,
    SubscriptionRow,
    decentralised_key,
    device_key,
    publisher_key,
    session_key,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import EventId
from wanderbus.protocol.bases import decoded
from wanderbus.records import Cut

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


ANSWERS_MAX: Final = 4_096
"""Answers to the publishes of a device of which another domain knows, at most: more than any device waits for."""


class ExportedPublisher(msgspec.Struct, frozen=True):
    """Publishes of a device, or of its outbox."""

    device: str
    outbox: bool
    row: PublisherRow
    decentralised: bool = False


class ExportedSession(msgspec.Struct, frozen=True):
    """The rows of one session; its owner epoch is that of the next owner."""

    session: SessionRow
    subscriptions: tuple[SubscriptionRow, ...]
    """Live ones, in the order of their creation."""
    ended: tuple[SubscriptionRow, ...]
    """Those that can be renewed, in the order of their end."""
    devices: tuple[DeviceRow, ...]
    publishers: tuple[ExportedPublisher, ...]
    events: tuple[EventRow, ...]
    blocks: tuple[tuple[int, Block], ...]
    """The queues, as they are stored."""
    patterns: dict[str, PatternRow] = {}
    """States of the patterns, by subscription."""
    advertisements: tuple[AdvertisementRow, ...] = ()
    """Those of the devices; none of them counts at the next server yet."""
    source: str = ""
    cuts: tuple[Cut, ...] = ()
    """Ends of what the session has got at its ``source``, of the log of each server."""
    past: bytes = b""
    """Causal past of the source, encoded, if it has decentralised channels."""
    through: int = 0
    """Number up to which the queue is in it, if the rest follows in pieces; 0 if all of it is."""


_decoder = msgspec.msgpack.Decoder(ExportedSession)
_pieces = msgspec.msgpack.Decoder(QueuePiece)
_publishers = msgspec.msgpack.Decoder(dict[str, PublisherRow])


def encode_export(exported: ExportedSession) -> bytes:
    """Return the bytes of an exported session for records and other servers."""
    return msgspec.msgpack.encode(exported)


def decode_export(data: bytes) -> ExportedSession:
    """Return the exported session in ``data``; :class:`RemoteProtocolError` for invalid data."""
    return decoded(_decoder, data, "an exported session")


def encode_piece(piece: QueuePiece) -> bytes:
    """Return the bytes of a piece of a queue for records and other servers."""
    return msgspec.msgpack.encode(piece)


def decode_piece(data: bytes) -> QueuePiece:
    """Return the piece of a queue in ``data``; :class:`RemoteProtocolError` for invalid data."""
    return decoded(_pieces, data, "a piece of a queue")


def export_session(
    state: BrokerState,
    user: str,
    name: str,
    owner_epoch: int,
    cuts: tuple[Cut, ...] = (),
    queue_bytes: int = 0,
    answers: Mapping[str, PublisherRow] | None = None,
) -> ExportedSession:
    """Return everything of a session for its owner in ``owner_epoch``; ``KeyError`` if there is none. Changes nothing.

    Behind the ``cuts`` the next owner gets the events itself; without any no server does. If it is not 0, the rest of
    the queue behind about ``queue_bytes`` is left out. For an owner in another domain there are ``answers`` of other
    servers here to its publishes, by publisher. The structs in it are copies, except the immutable ones.
    """
    session = state.sessions[session_key(user, name)]
    queue = state.queue.get(session.key)
    piece = QueuePiece(is_last=True) if queue is None else cut(queue, queue.blocks(), 0, queue_bytes or inf)
    first = session if queue is None or piece.is_last else _without_rest(session, queue, piece.through)
    devices = [state.devices[device_key(user, device)] for device in session.devices]
    publishers = (
        _exported_publishers(state, session, are_leaders_here=bool(cuts))
        if answers is None
        else _exported_answers(state, session, answers)
    )

    def leave(row: SubscriptionRow) -> SubscriptionRow:
        return row if cuts else closed(row, state.server, state.offset)

    exported = ExportedSession(
        session=msgspec.structs.replace(first, owner_epoch=owner_epoch),
        subscriptions=tuple(leave(state.subscriptions[each]) for each in session.subscriptions),
        ended=tuple(leave(state.tombstones[each]) for each in session.ended),
        devices=tuple(msgspec.structs.replace(row, binding=None, address=None) for row in devices),
        publishers=tuple(publishers),
        events=piece.events,
        blocks=piece.blocks,
        patterns={each: found for each in session.subscriptions if (found := state.patterns.row(each))},
        advertisements=tuple(
            msgspec.structs.replace(row, counts=False)
            for device in session.devices
            for row in state.advertisements.of_device(user, device)
        ),
        source=state.server,
        cuts=cuts,
        past=encode_past(state.decentralised, state.wall_us) if cuts and state.servers[state.server].servers else b"",
        through=0 if piece.is_last else piece.through,
    )
    return decode_export(encode_export(exported))


def _exported_publishers(
    state: BrokerState, session: SessionRow, *, are_leaders_here: bool
) -> Iterator[ExportedPublisher]:
    """Yield what the next owner in this domain has to know of the publishes of a session.

    Leaders that stay know the publishes to their ordered channels, but not those that were answered in another domain.
    """
    for device, outbox, key in _publishers_of(session):
        decentralised, ordered = state.publishers.get(decentralised_key(key)), state.publishers.get(key)
        if ordered is not None and are_leaders_here:
            far = {number: each for number, each in ordered.elsewhere.items() if "/" in each.origin}
            ordered = _answers_alone(ordered, far) if far else None
        for row, is_decentralised in ((ordered, False), (decentralised, True)):
            if row is not None:
                yield ExportedPublisher(device, outbox, published_elsewhere(state, row), is_decentralised)


def _exported_answers(
    state: BrokerState, session: SessionRow, others: Mapping[str, PublisherRow]
) -> Iterator[ExportedPublisher]:
    """Yield the answers to the publishes of a session, those of this server and of ``others``."""
    own = answers_to(state, session.user, session.devices)
    for device, outbox, key in _publishers_of(session):
        if (row := _joined([each[key] for each in (others, own) if key in each])) is not None:
            yield ExportedPublisher(device, outbox, row)


def _publishers_of(session: SessionRow) -> Iterator[tuple[str, bool, str]]:
    for device in session.devices:
        for outbox in (False, True):
            yield device, outbox, publisher_key(device_key(session.user, device), outbox=outbox)


def answers_to(state: BrokerState, user: str, devices: Iterable[str]) -> dict[str, PublisherRow]:
    """Return the answers of this server to the publishes of devices, as another domain needs them, by publisher.

    They have no highest number: which number a leader has seen last says nothing to the leaders of another domain.
    """
    found: dict[str, PublisherRow] = {}
    for device in devices:
        for outbox in (False, True):
            key = publisher_key(device_key(user, device), outbox=outbox)
            several = [state.publishers.get(key), state.publishers.get(decentralised_key(key))]
            several += [state.groups.publisher(int(group), key) for group in state.groups.rows]
            rows = [published_elsewhere(state, row) for row in several if row is not None]
            if (row := _joined([_answers_alone(each, each.elsewhere) for each in rows])) is not None:
                found[key] = row
    return found


def _answers_alone(row: PublisherRow, answers: dict[int, EventId]) -> PublisherRow:
    """Return a row that knows some answers, and otherwise nothing."""
    kept = dict(sorted(answers.items())[-ANSWERS_MAX:])
    digests = {number: digest for number, digest in row.digests.items() if number in kept}
    return PublisherRow(row.epoch, elsewhere=kept, digests=digests, former=row.former)


def are_answers(row: PublisherRow) -> bool:
    """Return whether a row, which another server says, is one of :func:`answers_to`."""
    return (
        not row.number
        and not row.recent
        and len(row.elsewhere) <= ANSWERS_MAX
        and row.digests.keys() <= row.elsewhere.keys()
        and len(row.former) <= FORMER_EPOCHS_MAX
        and all(0 <= number <= COUNT_MAX for number in (row.epoch, *row.elsewhere, *row.former, *row.former.values()))
    )


def _joined(rows: Sequence[PublisherRow]) -> PublisherRow | None:
    """Return all answers of the last epoch; a publisher waits for none of an earlier one."""
    return reduce(PublisherRow.merged, rows) if rows else None


def _without_rest(session: SessionRow, queue: SessionQueue, through: int) -> SessionRow:
    """Return the row of a session as if the notifications behind number ``through`` had never been generated."""
    waiting, matches, size = counted(queue, through)
    return msgspec.structs.replace(
        session,
        waiting=waiting,
        generated=session.generated - session.queued + matches,
        queued=matches,
        queued_bytes=size,
        past_queued_max=session.queued_max,
    )


def published_by(state: BrokerState, keys: Iterable[str]) -> dict[str, PublisherRow]:
    """Return the rows of the publishers with these keys that have published here."""
    return {key: published_elsewhere(state, row) for key in keys if (row := state.publishers.get(key)) is not None}


def published_elsewhere(state: BrokerState, row: PublisherRow) -> PublisherRow:
    """Return the row as another server needs it: every answer with its whole id."""
    own = {number: state.identity(each) for number, each in row.recent.items()}
    return PublisherRow(row.epoch, row.number, {}, row.elsewhere | own, row.digests, row.former)


def encode_publishers(publishers: dict[str, PublisherRow]) -> bytes:
    """Return the bytes of rows of publishers, by key, for records and other servers."""
    return msgspec.msgpack.encode(publishers)


def decode_publishers(data: bytes) -> dict[str, PublisherRow]:
    """Return the rows of publishers in ``data``; :class:`RemoteProtocolError` for invalid data."""
    return decoded(_publishers, data, "rows of publishers")


def decode_answers(data: bytes) -> dict[str, PublisherRow]:
    """Return what another server says that it has answered; :class:`RemoteProtocolError` for invalid data."""
    rows = decode_publishers(data) if data else {}
    if not all(map(are_answers, rows.values())):
        raise RemoteProtocolError("answers to publishes say more than that", None)
    return rows
