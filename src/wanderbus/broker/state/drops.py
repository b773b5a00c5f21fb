"""Drops of notifications: in records, and from the queues of a state, each replaced by a gap (SPEC G-15, U-02).

A record with notifications has the drops in it that these cause because they exceed a bound: one record of its own for
each would cost more than the delivery itself. Older logs have those, and drops for which no notification is the cause
still have them: :class:`wanderbus.records.Dropped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import asdict, replace

from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Queued
from wanderbus.broker.state.rows import EventRow, OwedGap, SessionRow
from wanderbus.records import (
    AnyRecord,
    Arrived,
    Delivery,
    Detected,
    Drop,
    Dropped,
    Matched,
    Notified,
    Published,
    Replayed,
)

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState

Delivering: TypeAlias = Published | Arrived | Matched | Detected | Replayed
"""Records with notifications that may displace others."""


def drops_of(record: AnyRecord) -> Iterator[Dropped]:
    """Yield the drops that ``record`` has in it, after its notifications, as records of their own."""
    match record:
        case Published(delivery=delivery) | Arrived(delivery=delivery):
            dropped = (*displaced_by(delivery.notified, delivery.displaced), *delivery.dropped)
        case Matched(dropped=dropped) | Detected(dropped=dropped) | Replayed(dropped=dropped):
            pass
        case _:
            return
    for each in dropped:
        yield alone(record.at_us, each)


def displaced_by(notified: Sequence[Notified], displaced: Mapping[str, Sequence[int]]) -> Iterator[Drop]:
    """Yield what left for these notifications, see :class:`wanderbus.records.Delivery`."""
    for reason, numbers in displaced.items():
        for each, number in zip(notified, numbers, strict=False):
            if number:
                yield Drop(each.user, each.session, number, number, reason, each.subscriptions)


def displacing(delivery: Delivery) -> Iterable[tuple[Notified, int, str]]:
    """Return each notification with the number of the one that leaves for it, if any, and the bound."""
    notified, bounds = delivery.notified, list(delivery.displaced.items())
    if not bounds:
        return zip(notified, repeat(0), repeat(""))
    ((reason, numbers), *others) = bounds
    if not others:
        return zip(notified, numbers, [reason] * len(notified), strict=True)
    leaving = [(0, "")] * len(notified)
    for reason, numbers in bounds:
        for place, number in enumerate(numbers):
            if number:
                leaving[place] = number, reason
    return ((each, number, reason) for each, (number, reason) in zip(notified, leaving, strict=True))


def with_drops(record: Delivering, dropped: tuple[Drop, ...]) -> Delivering:
    """Return ``record`` with the drops that its notifications caused."""
    if isinstance(record, Published | Arrived):
        return replace(record, delivery=replace(record.delivery, dropped=dropped))
    return replace(record, dropped=dropped)


def alone(at_us: int, dropped: Drop) -> Dropped:
    """Return a drop as a record of its own."""
    return Dropped(at_us=at_us, **asdict(dropped))


def drop(
    state: BrokerState, session: SessionRow, first: int, last: int, reason: str, subscriptions: Sequence[str]
) -> int:
    """Replace notifications of a session by gaps, in the queues of these subscriptions; of all without any.

    Return the number of dropped matches.
    """
    if (queue := state.queue.get(session.key)) is None:
        return 0
    count = 0
    for identity in subscriptions or list(queue.queues):
        if first == last and _displace(state, session, queue, identity, first, reason):
            count += 1
            continue
        dropped, released = queue.drop(identity, first, last, reason)
        if dropped:
            count += dropped
            count_dropped(state, session, reason, dropped)
            state.settle(session, dropped, released)
    return count


def drop_each(state: BrokerState, dropped: Iterable[Drop]) -> None:
    """Replace what the notifications of a record displaced."""
    for each in dropped:
        session = state.ensure_session(each.user, each.session)
        drop(state, session, each.first, each.last, each.reason, each.subscriptions)


def lose(state: BrokerState, gap: OwedGap) -> None:
    """Put a gap for lost events into the queues of a session; behind the rest of them, if that is on its way here."""
    notified = gap.notified
    session = state.ensure_session(notified.user, notified.session)
    if session.source:
        if session.epoch < state.epoch:
            session.begin(state.epoch)
        session.next = notified.number + 1
        session.owed.append(gap)
        state.sessions.put(session.key, session)
        return
    state.enqueue(notified, state.events.add_past(EventRow(gap.event, gap.at_us, b"")))
    drop(state, session, notified.number, notified.number, gap.reason, notified.subscriptions)


def exchange(
    state: BrokerState, session: SessionRow, queue: SessionQueue, newest: Queued, leaving: int, reason: str
) -> bool:
    """Add the ``newest`` notification to the queues of its subscriptions, which lose ``leaving`` for it.

    If that is the newest itself, it is dropped. Return False, with nothing done, if :class:`SessionQueue` cannot do it
    in place. There is no more room than before, so nobody who waits for some has to know.
    """
    subscriptions = newest.subscriptions
    if leaving == newest.number:
        if not queue.pass_over(subscriptions, leaving, reason):
            return False
        count_dropped(state, session, reason, len(subscriptions))
        state.events.release(newest.event)
        return True
    if (entry := queue.displace(subscriptions, leaving, reason, newest)) is None:
        return False
    count_dropped(state, session, reason, len(subscriptions))
    more = len(newest.event.data)
    if entry.waiting:  # it still waits for other subscriptions
        session.waiting += 1
    else:
        event = entry.event
        more -= len(event.data)
        if event.sessions > 1:
            event.sessions -= 1
        else:
            state.events.release(event)
    if more:
        session.queued_bytes += more
        state.queued_bytes += more
    return True


def count_dropped(state: BrokerState, session: SessionRow, reason: str, matches: int) -> None:
    """Count matches as dropped for ``reason``, if there are any."""
    if matches:
        for dropped in (session.dropped, state.totals.dropped):
            dropped[reason] = dropped.get(reason, 0) + matches


def count_restricted(state: BrokerState, restricted: Iterable[tuple[str, int]]) -> None:
    """Count notifications that restrictions of these subscriptions blocked."""
    for identity, _ in restricted:
        if (row := state.known(identity)) is not None:
            session = state.ensure_session(row.subscription.owner, row.subscription.session)
            session.restricted += 1
            state.totals.restricted += 1
            state.sessions.put(session.key, session)


def _displace(
    state: BrokerState, session: SessionRow, queue: SessionQueue, subscription: str, number: int, reason: str
) -> bool:
    """Drop a subscription's first notification ``number``, if :meth:`SessionQueue.displace` can."""
    if (entry := queue.displace((subscription,), number, reason)) is None:
        return False
    count_dropped(state, session, reason, 1)
    state.settle(session, 1, () if entry.waiting else (entry,))
    return True
