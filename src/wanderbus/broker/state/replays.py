"""Records of subscriptions that read the past from the log, applied to the state (SPEC T-05)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus import records
from wanderbus.broker.state.drops import drop_each
from wanderbus.broker.state.rows import EventRow, LogSpan, SessionRow, SubscriptionRow, session_key
from wanderbus.event import Event, EventId

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState

HISTORY_FAILED: Final = "history_failed"
"""Reason of the end of a subscription whose history cannot be read; if it is renewed, it continues live."""


def history_of(state: BrokerState, record: records.Subscribed) -> tuple[LogSpan, ...]:
    """Return the records that a new subscription has to read."""
    if record.history is None:
        return ()
    log = record.log or (state.server, state.incarnation)
    return (LogSpan(*log, record.history, epoch=record.leader_epoch),)


def first_of_history(state: BrokerState) -> int | None:
    """Return the offset of the first record of this log that a subscription has to read, None if there is none."""
    own = state.server, state.incarnation
    rows = (row for table in (state.subscriptions, state.tombstones) for row in table.values() if row.history)
    spans = (span for row in rows for span in row.history)
    read = [span.next for span in spans if (span.server, span.incarnation) == own]
    return min((*read, *(each.first for each in state.awaited.values())), default=None)


def leader_span(row: SubscriptionRow, server: str) -> LogSpan | None:
    """Return what a subscription reads now, if that is the log of another leader than ``server``; None otherwise."""
    span = row.history[0] if row.history else None
    return span if span is not None and span.end is None and span.server != server else None


def is_read(event: EventId, cuts: Iterable[records.Cut], *, decentralised: bool) -> bool:
    """Return whether an event of an ordered or a decentralised channel lies before the cut of its log.

    An event of a later epoch does not: if it has a lower number, its log was replaced by an earlier copy.
    """
    ends = (cut.decentralised if decentralised else cut.ordered for cut in cuts if cut.ordered.origin == event.origin)
    return any(event.incarnation <= end.incarnation and event.number < end.number for end in ends)


def is_read_elsewhere(event: EventId, content: Event, cuts: Sequence[records.Cut], *, decentralised: bool) -> bool:
    """Return the same if the session has come from another domain.

    Cuts made there name the server that has accepted an event in its own domain, ``/SERVER`` here; those made here name
    the server of this domain that has accepted it, also for another one.
    """
    here = [cut for cut in cuts if "/" not in cut.ordered.origin]
    far = [cut for cut in cuts if "/" in cut.ordered.origin and cut.subject in ("", content.subject)]
    origin = content.origin or EventId(f"/{event.origin}", event.incarnation, event.number)
    return is_read(event, here, decentralised=decentralised) or is_read(origin, far, decentralised=decentralised)


def are_far(cuts: Iterable[records.Cut]) -> bool:
    """Return whether the session of these cuts has come from another domain."""
    return any("/" in cut.ordered.origin for cut in cuts)


def apply_replayed(state: BrokerState, record: records.Replayed) -> None:
    """Advance the cursors of subscriptions in the log, and add their notifications to the queue."""
    session = state.sessions[session_key(record.user, record.session)]
    rows, live = {}, []
    for identity, restricted in ((record.subscription, record.restricted), *record.others):
        row = rows[identity] = state.subscriptions[identity]
        row.history = _advanced(row.history, record)
        if not row.history:
            live.append(identity)
            row.live_from = record.live_from
            if record.log is not None:
                end = read_below_of(record.log, record)
                row.read_below = (records.Cut(end, EventId(end.origin, 0, 0)),)
        session.restricted += restricted
        state.totals.restricted += restricted
        state.subscriptions.put(identity, row)
    state.sessions.put(session.key, session)
    for notified, each in zip(record.notified, record.events, strict=True):
        event = state.events.add_past(EventRow(each.id, each.at_us, bytes(each.event)))
        own = [rows[identity] for identity in notified.subscriptions]
        state.enqueue(notified_of(own, notified.number), event, record.at_us if each.is_history else 0)
    for stepped in record.stepped:
        state.patterns.take_read(stepped)
    for identity in live:
        state.patterns.go_live(identity)
    drop_each(state, record.dropped)


def read_below_of(log: tuple[str, int], record: records.Replayed) -> EventId:
    """Return the end of what a subscription has read in the ``log`` of another server, as an id of that server."""
    server, incarnation = log
    return EventId(server, record.read_epoch or incarnation, record.read_below)


def notified_of(rows: Sequence[SubscriptionRow], number: int) -> records.Notified:
    """Return the notification of subscriptions of one session."""
    wanted = [row.subscription for row in rows]
    bound = tuple((each.id, each.device) for each in wanted if each.device is not None)
    return records.Notified(wanted[0].owner, wanted[0].session, number, tuple(each.id for each in wanted), bound)


def handed_over(state: BrokerState, row: SubscriptionRow, cuts: Iterable[records.Cut], first: int) -> None:
    """Let an imported subscription continue behind the ``cuts`` of its former owner.

    The log here has what follows from offset ``first`` on. A subscription that reads the past of another log goes on
    with that.
    """
    latest = {(each.ordered.origin, each.subject): each for each in row.read_below}
    for cut in cuts:
        key = cut.ordered.origin, cut.subject
        before = latest.get(key, cut)
        latest[key] = records.Cut(
            max(cut.ordered, before.ordered), max(cut.decentralised, before.decentralised), cut.subject
        )
    row.read_below = tuple(latest.values())
    row.live_from, row.former = state.offset, ()
    if not row.history:
        row.history = (LogSpan(state.server, state.incarnation, first, is_handover=True),)


def read_behind(state: BrokerState, row: SubscriptionRow) -> None:
    """Let a subscription that begins to live read this log from now on, if its session is arriving.

    What it gets from now on comes behind the rest of the queue, and an event that others of the session match comes
    with theirs.
    """
    session = state.sessions[session_key(row.subscription.owner, row.subscription.session)]
    if not row.history and is_arriving(state, session):
        row.history = (LogSpan(state.server, state.incarnation, state.offset, is_handover=True),)
        state.subscriptions.put(row.subscription.id, row)
        state.patterns.read_log(row.subscription.id)


def is_arriving(state: BrokerState, session: SessionRow) -> bool:
    """Return whether a session that moved here is not all here yet, or still reads what came for it before."""
    if session.source or session.owner_epoch == 1:
        return bool(session.source)
    rows = (state.subscriptions[identity] for identity in session.subscriptions)
    return any(span.is_handover for row in rows for span in row.history)


def closed(row: SubscriptionRow, server: str, end: int) -> SubscriptionRow:
    """Return the row for another server: the log of this one, ``server``, ends at offset ``end`` for its session."""
    if not row.history or leader_span(row, server):
        return row
    spans = tuple([msgspec.structs.replace(each, end=end) if each.end is None else each for each in row.history])
    return msgspec.structs.replace(row, history=spans)


def continued(state: BrokerState, row: SubscriptionRow) -> None:
    """Let an imported subscription read this server's log from now on, after those of the former owners."""
    row.live_from, row.former = state.offset, ()
    if row.history and row.history[-1].end is not None:
        row.history = (*row.history, LogSpan(state.server, state.incarnation, state.offset))


def _advanced(spans: tuple[LogSpan, ...], record: records.Replayed) -> tuple[LogSpan, ...]:
    cursor, onward = record.next, record.onward
    if cursor is None:
        return ()
    first, *later = spans
    if onward is not None:
        return (LogSpan(onward.server, onward.incarnation, onward.offset, epoch=onward.leader_epoch), *later)
    if first.end is not None and cursor >= first.end:
        return tuple(later)
    incarnation = first.incarnation if record.log is None else record.log[1]
    return (msgspec.structs.replace(first, incarnation=incarnation, next=max(first.next, cursor)), *later)
