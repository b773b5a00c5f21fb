"""A session made from a copy, as an export that is imported like one of another server (SPEC J-05; decision 0147).

Everything in it is new: the ids of subscriptions and events, and the numbers. So nothing in a copy can be taken for an
event or a subscription that is known here. The waiting notifications wait from now on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus.broker.queues.queue import NUMBERS_OF_BLOCK
from wanderbus.broker.queues.stored_blocks import Block, CopiedEntry, StoredEntry, StoredGap, StoredMatch
from wanderbus.broker.state.exported_session import ExportedSession
from wanderbus.broker.state.past_sessions import next_number
from wanderbus.broker.state.rows import EventRow, SessionRow, SubscriptionRow, session_key
from wanderbus.event import EventId
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState

COPIED_MAX: Final = 2**20
"""Most subscriptions and items of one copy."""

COPIED_BYTES_MAX: Final = 64 * 2**20
"""Most bytes of the events of one copy: the whole of it is one record."""


def new_ids(state: BrokerState) -> EventId:
    """Return the first of :data:`COPIED_MAX` ids that nothing else gets: their origin is no server."""
    return EventId(f"{state.server}.import", state.wall_us, state.offset * COPIED_MAX)


def following(first: EventId, place: int) -> EventId:
    """Return the id ``place`` behind the ``first``."""
    return EventId(first.origin, first.incarnation, first.number + place)


def session_of_copy(
    state: BrokerState, user: str, name: str, subscriptions: Sequence[Subscription], items: Sequence[CopiedEntry]
) -> ExportedSession:
    """Return the session of a copy, with the counters of the empty session in whose place it comes, if there is one.

    Nothing is in that session but devices, which join again.
    """
    before = state.sessions.get(session_key(user, name))
    number = next_number(state, user) if before is None else before.next
    session = SessionRow(user, name, epoch=state.wall_us, next=number, first=number)
    if before is not None:
        session = msgspec.structs.replace(before, devices=[], dropped=dict(before.dropped))
    session.rolled_back = state.servers[state.server].rolled_back
    session.subscriptions = [each.id for each in subscriptions]
    queue = _Queue(session, state, len(subscriptions))
    rows = tuple(SubscriptionRow(each, place, settled=number - 1) for place, each in enumerate(subscriptions, 1))
    for item in items:
        queue.add(item)
    return ExportedSession(
        session=session,
        subscriptions=rows,
        ended=(),
        devices=(),
        publishers=(),
        events=tuple(queue.events),
        blocks=queue.blocks(),
        source=state.server,
    )


class _Queue:
    """The queue of a copy, with numbers of its session."""

    def __init__(self, session: SessionRow, state: BrokerState, used: int) -> None:
        self._session = session
        self._at_us = state.wall_us
        self._first_id = new_ids(state)
        self._used = used
        """Ids that subscriptions have."""
        self.events: list[EventRow] = []
        self._items: list[tuple[int, EventId, StoredMatch] | StoredGap] = []

    def add(self, item: CopiedEntry) -> None:
        """Add the next item, and count it."""
        session, number = self._session, self._session.next
        if item.lost:
            (subscription,) = item.subscriptions
            count = sum(item.lost.values())
            self._items.append(StoredGap(subscription, number, number + count - 1, dict(item.lost), {}))
            session.next += count
            session.generated += count
            for reason, lost in item.lost.items():
                session.dropped[reason] = session.dropped.get(reason, 0) + lost
            return
        event = EventRow(following(self._first_id, self._used + len(self.events)), self._at_us, item.data)
        self.events.append(event)
        self._items.append((number, event.id, StoredMatch(item.subscriptions, ())))
        session.next += 1
        session.waiting += 1
        session.generated += len(item.subscriptions)
        session.change_queued(len(item.subscriptions), self._at_us)
        session.queued_bytes += len(item.data)

    def blocks(self) -> tuple[tuple[int, Block], ...]:
        """Return the stored form."""
        return tuple(
            (number, _block(number, list(items)))
            for number, items in groupby(self._items, lambda item: _number(item) // NUMBERS_OF_BLOCK)
        )


def _number(item: tuple[int, EventId, StoredMatch] | StoredGap) -> int:
    return item.number if isinstance(item, StoredGap) else item[0]


def _block(block: int, items: Sequence[tuple[int, EventId, StoredMatch] | StoredGap]) -> Block:
    entries = [item for item in items if not isinstance(item, StoredGap)]
    origins = tuple(dict.fromkeys((identity.origin, identity.incarnation) for _, identity, _ in entries))
    matches = {match: place for place, match in enumerate(dict.fromkeys(match for _, _, match in entries))}
    return Block(
        origins,
        tuple(matches),
        tuple(
            StoredEntry(number - block * NUMBERS_OF_BLOCK, 0, identity.number, matches[match])
            for number, identity, match in entries
        ),
        tuple(item for item in items if isinstance(item, StoredGap)),
    )
