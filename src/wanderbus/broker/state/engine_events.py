"""Events that the matching engine matches, and which subscriptions they are for, applied to the state (SPEC T-06).

The engine answers later than the event was accepted, so each subscription knows for which offsets it was live. Times
that the engine has passed are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from wanderbus import records
from wanderbus.broker.state.drops import count_restricted, drop_each
from wanderbus.broker.state.rows import EventRow, SubscriptionLife, SubscriptionRow
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState

FORMER_MAX: Final = 16
"""Former lives of a subscription that are kept apart; of more, the oldest two are merged."""


def accepted(state: BrokerState, offset: int) -> None:
    """Add an event for the engine; if no other one waits, the engine has nothing to match below it."""
    server = state.servers[state.server]
    if not is_waited_for(state):
        server.engine_next = offset
    server.engine_end = offset + 1


def is_waited_for(state: BrokerState) -> bool:
    """Return whether the records name events that the engine may not have matched."""
    server = state.servers[state.server]
    return server.engine_next < server.engine_end


def apply_matched(state: BrokerState, record: records.Matched) -> None:
    """Add the notifications of matched events to the queues, and advance the watermark."""
    state.servers[state.server].engine_next = record.next
    apply_events(state, record.events)
    drop_each(state, record.dropped)


def apply_events(state: BrokerState, events: Iterable[records.MatchedEvent]) -> None:
    """Add the notifications of these events to the queues."""
    for each in events:
        count_restricted(state, each.restricted)
        for notified in each.notified:
            event = state.events.add_past(EventRow(each.id, each.at_us, bytes(each.event)))
            state.enqueue(notified, event)


def begin_life(row: SubscriptionRow, offset: int) -> None:
    """Let a subscription be live from ``offset`` on."""
    row.live_from = offset


def end_life(state: BrokerState, row: SubscriptionRow, end: int) -> None:
    """Note that a subscription was live until offset ``end``, if the engine has events to match from before."""
    if row.history or not is_waited_for(state):
        row.former = ()
        return
    former = [life for life in row.former if life.end > state.servers[state.server].engine_next]
    former.append(_life_until(row, end))
    if len(former) > FORMER_MAX:
        first, second, *_ = former
        former[:2] = [replace(second, first=first.first)]
    row.former = tuple(former)


def change_life(state: BrokerState, row: SubscriptionRow, changed: Subscription, at_us: int, offset: int) -> None:
    """Begin another life if restrictions change, or if it expired before its renewal or expires at once."""
    expiries = (row.subscription.expires_us, changed.expires_us)
    is_over = any(each is not None and each <= at_us for each in expiries)
    if is_over or changed.restrictions != row.subscription.restrictions:
        end_life(state, row, offset)
        begin_life(row, offset)


def abandon_lives(state: BrokerState, row: SubscriptionRow, device: str) -> None:
    """Let ``device`` read nothing that an ended subscription, or one whose queue it has inherited, still gets.

    If no other device could read it, nothing more is got (SPEC X20).
    """
    subscription = row.subscription
    session = state.ensure_session(subscription.owner, subscription.session)
    is_alone = session.devices == [device] or subscription.device == device
    for identity in session.ended:
        each = state.tombstones[identity]
        if each.former and successor_of(state, each) is row:
            each.former = () if is_alone else tuple(replace(life, abandoned_by=device) for life in each.former)
            state.tombstones.put(identity, each)


def successor_of(state: BrokerState, row: SubscriptionRow) -> SubscriptionRow:
    """Return the subscription that has the queue of an ended one now; itself if none does."""
    while row.successor and (successor := state.known(row.successor)) is not None:
        row = successor
    return row


def life_at(row: SubscriptionRow, offset: int, at_us: int, *, is_live: bool) -> SubscriptionLife | None:
    """Return the life in which a subscription gets the event at ``offset`` of time ``at_us``, None if it does not."""
    for life in row.former:
        if life.first <= offset < life.end and (life.until_us is None or at_us < life.until_us):
            return life
    until_us = row.subscription.expires_us
    if is_live and offset >= row.live_from and (until_us is None or at_us < until_us):
        return _life_until(row, offset + 1)
    return None


def _life_until(row: SubscriptionRow, end: int) -> SubscriptionLife:
    """Return the present life of a subscription, up to offset ``end``."""
    subscription = row.subscription
    return SubscriptionLife(row.live_from, end, subscription.expires_us, restrictions=subscription.restrictions)
