"""Rows that list sessions, subscriptions and queues: flat, of plain values, units in the names; and their messages.

Names that end in ``_us`` are microseconds since the Unix epoch, those in ``_s`` are seconds until now. The time to make
a session's row is linear in its subscriptions with waiting items; that of a queue with gaps is linear in its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from wanderbus import protocol
from wanderbus.broker.links import Links
from wanderbus.broker.queues.queue import SubscriptionQueue
from wanderbus.broker.queues.queue_items import Item, Queued, QueuedGap
from wanderbus.broker.readers import OpenReader
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow, device_key, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Loss
from wanderbus.limits import EVENT_BYTES_MAX, MESSAGE_BYTES_MAX
from wanderbus.parameters.broker import BrokerConfig

Row: TypeAlias = Mapping[str, Any]

UNREAD_SHOWN: Final = 8
"""Unread subscriptions that a session's row shows."""

ROWS_MAX: Final = 250
"""Rows of one answer."""

ANSWER_BYTES_MAX: Final = 256 * 1024
"""Bytes of the encoded rows of one answer; one row is always sent."""

_PART_BYTES_MAX: Final = MESSAGE_BYTES_MAX // 2
"""Bytes of the encoded rows of one message; a single row may be larger."""

_ROW_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 1_024
"""A larger row is sent without its fields above :data:`_FIELD_BYTES_MAX`; ``cut`` names them."""

_FIELD_BYTES_MAX: Final = 512


class Listings:
    """Makes the rows from the present state."""

    def __init__(self, state: BrokerState, links: Links, config: BrokerConfig) -> None:
        self._state = state
        self._links = links
        self._queue_bounds = msgspec.structs.asdict(config.queue)

    def session(self, session: SessionRow) -> Row:
        """Return a session, its devices and its counters of matches (SPEC G-21).

        ``status`` is CONNECTED while one of its devices is; the user may have others, and make requests as an operator.
        """
        devices = [self._device(session, device) for device in session.devices]
        is_connected = any(device["status"] == "CONNECTED" for device in devices)
        return {
            "user": session.user,
            "session": session.name,
            "status": "CONNECTED" if is_connected else "DISCONNECTED",
            "devices": devices,
            "subscriptions": len(session.subscriptions),
            "generated": session.generated,
            "delivered": session.delivered,
            "queued": session.queued,
            "queued_bytes": session.queued_bytes,
            "dropped": session.dropped,
            "restricted": session.restricted,
            "queued_max": session.queued_max,
            "arriving_from": session.source,
            "acknowledgements": session.acknowledgements,
            "absences": session.absences,
            **self._unread(session),
        }

    def past_sessions(self, user: str) -> Row | None:
        """Return the sum of the sessions of a user that are over, as a session without a name; None if there are none.

        A session without notifications leaves nothing.
        """
        former = self._state.former.get(user)
        if former is None or (past := former.sessions) is None:
            return None
        return {
            "user": user,
            "session": "",
            "status": "DISCONNECTED",
            "devices": [],
            "subscriptions": 0,
            "generated": past.generated,
            "delivered": past.delivered,
            "queued": 0,
            "queued_bytes": 0,
            "dropped": past.dropped,
            "restricted": past.restricted,
            "queued_max": past.queued_max,
            "acknowledgements": past.acknowledgements,
            "absences": past.absences,
        }

    def _unread(self, session: SessionRow) -> Row:
        """Return the subscriptions with waiting items that nobody reads, the longest first (SPEC G-25)."""
        rows = map(self._state.known, self._queues_of(session))
        states = [self._reading(row) for row in rows if row is not None]
        unread = sorted((each for each in states if each["state"] != "reading"), key=_longest)
        return {"unread": len(unread), "unread_subscriptions": unread[:UNREAD_SHOWN]}

    def _reading(self, row: SubscriptionRow) -> Row:
        """Return the reading state of a subscription: ``state`` is ``reading``, ``window_full`` or ``not_read``."""
        subscription = row.subscription
        session = session_key(subscription.owner, subscription.session)
        links = [(link, reader) for link in self._links.of_session(session) if (reader := link.reader(subscription.id))]
        queue = self._queues_of(self._state.sessions[session]).get(subscription.id)
        oldest = None if queue is None else queue.oldest()
        full = [reader.full_since for _, reader in links if reader.full_since is not None]
        unattended = any(link.unattended for link in self._links.of_session(session))
        waits_unread = oldest is not None and not links and not unattended
        return {
            "subscription": subscription.id,
            "state": "window_full" if full else "not_read" if waits_unread else "reading",
            "queued": 0 if queue is None else queue.waiting,
            "queued_bytes": 0 if queue is None else queue.queued_bytes,
            "oldest_s": None if oldest is None else self._since_s(oldest.queued_us),
            "blocked_s": max(0.0, self._links.now - min(full)) if full else None,
            "readers": [_reader(link.device, reader) for link, reader in links],
        }

    def _queues_of(self, session: SessionRow) -> Mapping[str, SubscriptionQueue]:
        queue = self._state.queue.get(session.key)
        return {} if queue is None else queue.queues

    def _device(self, session: SessionRow, device: str) -> Row:
        row = self._state.devices[device_key(session.user, device)]
        link = self._links.of_device(session.user, device)
        return {
            "device": device,
            "status": row.status,
            "address": row.address,
            "away_s": None if row.away_since_us is None else self._since_s(row.away_since_us),
            "reading": link.reading if link is not None else 0,
        }

    def subscription(self, row: SubscriptionRow) -> Row:
        """Return a subscription as it was submitted (SPEC A-04), and its reading state."""
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
            "since": None if subscription.since is None else str(subscription.since),
            "history_from": row.history[0].next if row.history else None,
            "pattern_events": self._state.patterns.kept(subscription.id),
            **self._reading(row),
        }

    def queue(self, session: SessionRow) -> Row:
        """Return the queue of a session and its bounds (SPEC G-15 to G-17).

        ``notifications`` and ``gaps`` count its items; ``missing`` is the number of notifications lost in the gaps.
        """
        queues = self._queues_of(session).values()
        oldest = [entry for queue in queues if (entry := queue.oldest()) is not None]
        gaps = [item for queue in queues if queue.gaps for item in queue if isinstance(item, QueuedGap)]
        return {
            "user": session.user,
            "session": session.name,
            "notifications": session.waiting,
            "queued": session.queued,
            "queued_bytes": session.queued_bytes,
            "oldest_s": max((self._since_s(entry.queued_us) for entry in oldest), default=None),
            "gaps": len(gaps),
            "missing": sum(gap.count for gap in gaps),
            **self._unread(session),
            **self._queue_bounds,
        }

    def waiting(self, session: SessionRow, first: int, subscription: str | None = None) -> Iterator[Row]:
        """Yield the items from number ``first`` on: rows with an ``event``, and gaps, which have none."""
        queue = self._state.queue.get(session.key)
        for group in () if queue is None else queue.items_from(first, subscription):
            yield self._row(session, group)

    def _row(self, session: SessionRow, group: Sequence[tuple[str, Item]]) -> Row:
        """Return a row for the items that begin at one number."""
        last = max(item.last for _, item in group)
        first = group[0][1].number
        row: dict[str, Any] = {"epoch": session.position(first).epoch, "first": first, "last": last}
        waiting = [identity for identity, item in group if isinstance(item, Queued)]
        entry = next((item for _, item in group if isinstance(item, Queued)), None)
        if entry is not None:
            row |= {
                "id": entry.event.id,
                "event": msgspec.Raw(entry.event.data),
                "subscriptions": waiting,
                "age_s": self._since_s(entry.queued_us),
            }
        return row | {"lost": _losses(group)}

    def _since_s(self, at_us: int) -> float:
        return max(0, self._state.wall_us - at_us) / 1e6


def _losses(group: Sequence[tuple[str, Item]]) -> list[Loss]:
    gaps = [(identity, item) for identity, item in group if isinstance(item, QueuedGap)]
    return [Loss(identity, reason, count) for identity, gap in gaps for reason, count in gap.lost.items()]


def _reader(device: str, reader: OpenReader) -> Row:
    return {"device": device, "unacknowledged": len(reader.unacknowledged or ())}


def _longest(row: Row) -> tuple[int, str]:
    return -row["queued"], row["subscription"]


def listing(request: int, rows: Iterable[bytes], after: str | None) -> Iterator[protocol.Listing]:
    """Yield the messages of an answer with these encoded rows; ``after`` is the cursor of the next one."""
    part: list[msgspec.Raw] = []
    part_bytes = 0
    for row in rows:
        if part_bytes + len(row) > _PART_BYTES_MAX and part:
            yield _message(request, part, more=True)
            part, part_bytes = [], 0
        part.append(msgspec.Raw(row))
        part_bytes += len(row)
    yield _message(request, part, next=after)


def encoded_row(row: Row, event_bytes_max: int = EVENT_BYTES_MAX) -> bytes:
    """Return the bytes of a row; a row too large for a message loses its large fields, the last first.

    A message has room for an event of ``event_bytes_max`` bytes.
    """
    bytes_max = _ROW_BYTES_MAX + event_bytes_max - EVENT_BYTES_MAX
    data = msgspec.msgpack.encode(row)
    left, cut = dict(row), list[str]()
    for name in reversed(list(row)):
        if len(data) <= bytes_max:
            break
        if len(msgspec.msgpack.encode(row[name])) > _FIELD_BYTES_MAX:
            del left[name]
            cut.append(name)
            data = msgspec.msgpack.encode({**left, "cut": cut})
    return data


def _message(request: int, rows: list[msgspec.Raw], **rest: Any) -> protocol.Listing:
    return protocol.Listing(request, cast(tuple[Row, ...], tuple(rows)), **rest)
