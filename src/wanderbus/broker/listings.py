"""What is listed of sessions, subscriptions and queues: a flat row of plain values for each, units in the names.

Times that end in ``_us`` are microseconds since the Unix epoch, what ends in ``_s`` is seconds until now. Every row is
made in constant time, but those of peeking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.links import Links
from wanderbus.broker.queue import Entry, Hole, LossKey, Queued
from wanderbus.broker.rows import SessionRow, SubscriptionRow, device_key
from wanderbus.broker.state import BrokerState
from wanderbus.event import EventId, Loss

Row: TypeAlias = Mapping[str, Any]


class Listings:
    """Makes the rows, of the state as it is now."""

    def __init__(self, state: BrokerState, links: Links, config: BrokerConfig) -> None:
        self._state = state
        self._links = links
        self._queue_bounds = msgspec.structs.asdict(config.queue)

    def session(self, session: SessionRow) -> Row:
        """Return a session, its devices and its counters, of matches (SPEC G-21).

        ``status`` is the User Status of its user (SPEC E-07).
        """
        return {
            "user": session.user,
            "session": session.name,
            "status": self._links.status(session.user),
            "devices": [self._device(session, device) for device in session.devices],
            "subscriptions": len(session.subscriptions),
            "generated": session.generated,
            "delivered": session.delivered,
            "queued": session.queued,
            "queued_bytes": session.queued_bytes,
            "dropped": session.dropped,
            "restricted": session.restricted,
        }

    def _device(self, session: SessionRow, device: str) -> Row:
        row = self._state.devices[device_key(session.user, device)]
        return {
            "device": device,
            "status": row.status,
            "address": row.address,
            "away_s": None if row.away_since_us is None else self._since_s(row.away_since_us),
            "cursor": row.cursor,
            "waiting": session.next - 1 - row.cursor,
        }

    def subscription(self, row: SubscriptionRow) -> Row:
        """Return a subscription with all that was submitted (SPEC A-04), and what it has generated."""
        subscription = row.subscription
        return {
            "subscription": subscription.id,
            "user": subscription.owner,
            "session": subscription.session,
            "subject": subscription.subject,
            "expression": subscription.expression,
            "language": subscription.language,
            "format": subscription.format,
            "expires_us": subscription.expires_us,
            "restrictions": subscription.restrictions,
            "device": subscription.device,
            "queue": subscription.queue,
            "last_us": row.last_us,
            "queued": row.waiting,
            "queued_bytes": row.waiting_bytes,
        }

    def queue(self, session: SessionRow) -> Row:
        """Return what waits in a session and the bounds that hold for it (SPEC G-15 to G-17).

        ``notifications`` and ``gaps`` are what it holds; ``missing`` is how many notifications are gone in the gaps.
        """
        empty = session.first == session.next
        oldest = None if empty else next(filter(_is_queued, self._state.queue[session.key].entries_from(0)), None)
        return {
            "user": session.user,
            "session": session.name,
            "notifications": session.waiting,
            "queued": session.queued,
            "queued_bytes": session.queued_bytes,
            "oldest_s": self._since_s(oldest.event.at_us) if isinstance(oldest, Queued) else None,
            "gaps": 0 if empty else len(self._state.queue[session.key]) - session.waiting,
            "missing": session.next - session.first - session.waiting,
            **self._queue_bounds,
        }

    def waiting(self, session: SessionRow, first: int) -> Iterator[Row]:
        """Yield what waits from number ``first`` on: rows with an ``event``, and gaps, which have none."""
        if session.first == session.next:
            return
        for entry in self._state.queue[session.key].entries_from(first):
            if entry.last >= first:
                yield self._entry(session, entry)

    def _entry(self, session: SessionRow, entry: Entry) -> Row:
        row: dict[str, Any] = {"epoch": session.epoch, "first": entry.number, "last": entry.last}
        if isinstance(entry, Queued):
            row |= {
                "id": EventId(self._state.server, entry.event.offset),
                "event": msgspec.Raw(entry.event.data),
                "subscriptions": entry.subscriptions,
                "age_s": self._since_s(entry.event.at_us),
            }
        return row | {"lost": _losses(entry.lost)}

    def _since_s(self, at_us: int) -> float:
        return max(0, self._state.wall_us - at_us) / 1e6


def _is_queued(entry: Entry) -> bool:
    return not isinstance(entry, Hole)


def _losses(lost: dict[LossKey, int] | None) -> list[Loss]:
    return [Loss(subscription, reason, count) for (subscription, reason, _), count in (lost or {}).items()]
