"""A whole session as one value, to be moved to another server (SPEC L-01; DESIGN 5.3).

It has everything that the session needs to go on as if it had not moved: its subscriptions with their lifetimes and
the times that restrictions compare, its devices with their cursors, its queues, and the publishes of its devices that
are recognised when they are repeated. The SIP dialogs of the devices stay: a device begins another one elsewhere.

Instants are those of the source's clock. The servers of a domain keep the same time, so an expiry remains the instant
that the agent knows, and a transfer does not extend a lifetime.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

import msgspec

from wanderbus.broker.queues.left_queue import counted, cut
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.stored_blocks import Block, QueuePiece
from wanderbus.broker.state.decentralised_state import encode_past
from wanderbus.broker.state.replays import closed
from wanderbus.broker.state.rows import (
    AdvertisementRow,
    DeviceRow,
    EventRow,
    PatternRow,
    PublisherRow,
    SessionRow,
    SubscriptionRow,
    device_key,
    publisher_key,
    session_key,
)
from wanderbus.protocol.bases import decoded
from wanderbus.records import Cut

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


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
    state: BrokerState, user: str, name: str, owner_epoch: int, cuts: tuple[Cut, ...] = (), queue_bytes: int = 0
) -> ExportedSession:
    """Return everything of a session for its owner in ``owner_epoch``; ``KeyError`` if there is none. Changes nothing.

    Behind the ``cuts`` the next owner gets the events itself; without any no server does. If it is not 0, the rest of
    the queue behind about ``queue_bytes`` is left out. The structs in it are copies, except the immutable ones.
    """
    session = state.sessions[session_key(user, name)]
    queue = state.queue.get(session.key)
    piece = QueuePiece(is_last=True) if queue is None else cut(queue, queue.blocks(), 0, queue_bytes or inf)
    first = session if queue is None or piece.is_last else _without_rest(session, queue, piece.through)
    devices = [state.devices[device_key(user, device)] for device in session.devices]
    # In a domain, the leaders of ordered channels know the publishes to these.
    publishers = [
        ExportedPublisher(device, outbox, published_elsewhere(state, row), decentralised)
        for device in session.devices
        for outbox in (False, True)
        for decentralised in ((True,) if cuts else (False, True))
        if (
            row := state.publishers.get(
                publisher_key(device_key(user, device), outbox=outbox, decentralised=decentralised)
            )
        )
    ]

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
        past=encode_past(state.decentralised.causal) if cuts and state.servers[state.server].servers else b"",
        through=0 if piece.is_last else piece.through,
    )
    return decode_export(encode_export(exported))


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
