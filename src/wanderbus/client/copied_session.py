"""Copies of sessions, made by an agent's requests, and sessions made from them (SPEC J-05)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus import protocol
from wanderbus.errors import Refused, RemoteProtocolError
from wanderbus.event import CopiedItem, Gap, Notification
from wanderbus.operator_rows import SubscriptionInfo
from wanderbus.protocol.session_copy import SessionCopy
from wanderbus.runtime.system_random import wall_us
from wanderbus.subscription import PATTERN, Subscription

if TYPE_CHECKING:
    from wanderbus.client.operator import Operator

_PIECE_BYTES: Final = 16_384
"""Encoded bytes of items after which a piece is sent."""


async def copy_of(operator: Operator, user: str, session: str) -> SessionCopy:
    """Return a copy of a session: what waits when it is read, without what comes while it is.

    Raise :class:`Refused` while a part of the queue is at another server.
    """
    sources = [each.arriving_from async for each in operator.sessions(user) if each.session == session]
    if any(sources):
        raise Refused(
            f"the rest of the queue of the session {session!r} is on its way from {sources[0]}; try again later"
        )
    rows = [row async for row in operator.subscriptions(user) if row.session == session]
    copied = [_subscription(row) for row in rows if row.language != PATTERN and row.device is None]
    copy = SessionCopy(user, session, wall_us(), tuple(copied), (), len(rows) - len(copied))
    return msgspec.structs.replace(copy, items=await waiting_items(operator, copy))


async def waiting_items(operator: Operator, copy: SessionCopy) -> tuple[CopiedItem, ...]:
    """Return what waits for the subscriptions of ``copy`` now."""
    ids = {each.id for each in copy.subscriptions}
    waiting = [row async for row in operator.queues(copy.user) if row.session == copy.session]
    count = sum(row.notifications + row.gaps for row in waiting)
    items = [item async for item in operator.peek(copy.user, copy.session, count=count)]
    return tuple([found for item in items if (found := _copied(item).among(ids))])


def pieces(copy: SessionCopy) -> Iterator[tuple[Subscription | None, tuple[CopiedItem, ...]]]:
    """Yield what each message about ``copy`` has in it; there is one at least."""
    for subscription in copy.subscriptions:
        yield subscription, ()
    part: list[CopiedItem] = []
    part_bytes = 0
    for item in copy.items:
        size = protocol.size_of(item)
        if part and part_bytes + size > _PIECE_BYTES:
            yield None, tuple(part)
            part, part_bytes = [], 0
        part.append(item)
        part_bytes += size
    yield None, tuple(part)


def _copied(item: Notification | Gap) -> CopiedItem:
    if isinstance(item, Gap):
        return CopiedItem(None, (), item.lost)
    return CopiedItem(item.event, item.subscriptions)


def _subscription(row: SubscriptionInfo) -> Subscription:
    if row.cut:
        raise RemoteProtocolError(f"the broker lists {row.subscription} without {', '.join(row.cut)}", None)
    return Subscription(
        row.subscription,
        row.user,
        row.session,
        row.subject,
        row.expression,
        row.expires_us,
        tuple(row.restrictions),
        queue=row.queue,
        language=row.language,
        format=row.format,
    )
