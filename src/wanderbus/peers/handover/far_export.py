"""Export of a session for another domain: names of servers there and here are the same, and mean others (0165).

Each event that waits gets an id of the domain that the session leaves. So no event of another one is replaced by it,
and its id says nothing of a log of the next owner.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wanderbus.broker.queues.stored_blocks import Block, QueuePiece
from wanderbus.broker.state.exported_session import (
    ExportedPublisher,
    ExportedSession,
    are_answers,
    decode_export,
    encode_export,
)
from wanderbus.broker.state.rows import EventRow, SubscriptionRow
from wanderbus.event import EventId
from wanderbus.protocol import decode_event, encode_event
from wanderbus.records import Cut


def far_export(export: bytes, own: str, server: str, target: str) -> bytes:
    """Return an export as a server ``target`` of another domain takes it from ``server`` of the domain ``own``.

    The causal past stays, as it is about servers of this domain.
    """
    exported, there = decode_export(export), target.partition("/")[0]
    piece = far_piece(QueuePiece(blocks=exported.blocks, events=exported.events), own)

    def leave(row: SubscriptionRow) -> SubscriptionRow:
        earlier = _far_cuts([each for each in row.read_below if "/" in each.ordered.origin], own, there)
        return msgspec.structs.replace(row, read_below=earlier, history=(), former=(), live_from=0)

    return encode_export(
        ExportedSession(
            session=exported.session,
            subscriptions=tuple(map(leave, exported.subscriptions)),
            ended=tuple(map(leave, exported.ended)),
            devices=tuple(msgspec.structs.replace(row, gone_to="") for row in exported.devices),
            publishers=tuple([_far_publisher(each, own) for each in exported.publishers]),
            events=piece.events,
            blocks=piece.blocks,
            source=f"{own}/{server}",
            cuts=_far_cuts(exported.cuts, own, there),
            through=exported.through,
        )
    )


def far_piece(piece: QueuePiece, own: str) -> QueuePiece:
    """Return a piece of a queue with ids of the domain ``own``."""
    blocks = tuple([(number, _far_block(block, own)) for number, block in piece.blocks])
    return msgspec.structs.replace(piece, blocks=blocks, events=tuple([_far_event(row, own) for row in piece.events]))


def _far_publisher(publisher: ExportedPublisher, own: str) -> ExportedPublisher:
    """Return the answers to the publishes of a device with ids of the domains in which they were accepted."""
    row = publisher.row
    answers = {
        number: each if "/" in each.origin else EventId(f"{own}/{each.origin}", each.incarnation, each.number)
        for number, each in row.elsewhere.items()
    }
    return msgspec.structs.replace(publisher, row=msgspec.structs.replace(row, elsewhere=answers))


def are_far(publishers: Iterable[ExportedPublisher]) -> bool:
    """Return whether another domain says nothing of publishes but answers, all with ids of other domains."""
    return all(
        are_answers(each.row)
        and not each.decentralised
        and all("/" in identity.origin for identity in each.row.elsewhere.values())
        for each in publishers
    )


def comes_from(events: Iterable[EventRow], domain: str) -> bool:
    """Return whether all events that wait have ids of a domain."""
    return all(
        each.id.origin.startswith(f"{domain}/") and "/" not in each.id.origin[len(domain) + 1 :] for each in events
    )


def _far_block(block: Block, own: str) -> Block:
    origins = tuple([(_far_origin(origin, own), incarnation) for origin, incarnation in block.origins])
    return msgspec.structs.replace(block, origins=origins)


def _far_event(row: EventRow, own: str) -> EventRow:
    identity, event = (
        EventId(_far_origin(row.id.origin, own), row.id.incarnation, row.id.number),
        decode_event(row.data),
    )
    data = row.data if event.origin else encode_event(msgspec.structs.replace(event, origin=identity))
    return msgspec.structs.replace(row, id=identity, data=data)


def _far_origin(origin: str, own: str) -> str:
    return f"{own}/{origin.rpartition('/')[2]}"


def _far_cuts(cuts: Iterable[Cut], own: str, there: str) -> tuple[Cut, ...]:
    """Return cuts as the domain ``there`` names the servers; its own have an empty domain."""
    return tuple(
        [Cut(_named(each.ordered, own, there), _named(each.decentralised, own, there), each.subject) for each in cuts]
    )


def _named(identity: EventId, own: str, there: str) -> EventId:
    domain, _, server = identity.origin.rpartition("/")
    name = f"/{server}" if domain == there else f"{domain or own}/{server}"
    return EventId(name, identity.incarnation, identity.number)
