"""Events of other servers, applied to the state: their notifications, and how far this server has got (SPEC K-02)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus import records
from wanderbus.broker.state.drops import count_restricted, displacing, drop_each, lose
from wanderbus.broker.state.rows import EventRow, LeaderRow, OwedGap
from wanderbus.event import EventId

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


def apply_arrived(state: BrokerState, offset: int, record: records.Arrived) -> None:
    """Add the notifications of an event to the queues, and advance the position at its leader or origin."""
    arrival, delivery = record.arrival, record.delivery
    if record.causal:
        state.decentralised.arrived(record)
    else:
        state.leaders.put(arrival.leader, LeaderRow(arrival.epoch, arrival.number, arrival.id))
    if delivery.steps:
        state.patterns.take(offset, arrival.id, record)
    if delivery.restricted:
        count_restricted(state, delivery.restricted)
    for notified, leaving, reason in displacing(delivery):
        # A session that was moved here may have brought the same event along.
        event = state.events.add_past(EventRow(arrival.id, record.at_us, bytes(arrival.event)))
        state.enqueue(notified, event, 0, leaving, reason)
    if delivery.dropped:
        drop_each(state, delivery.dropped)


def apply_arrivals_lost(state: BrokerState, record: records.ArrivalsLost) -> None:
    """Put a gap into the queues of the subscriptions concerned, and advance the position at the leader or origin."""
    if record.causal:
        state.decentralised.changed(record.causal)
    else:
        before = state.leaders.get(record.leader)
        state.leaders.put(
            record.leader, LeaderRow(record.epoch, record.number, before.last if before is not None else None)
        )
    for notified in record.notified:
        lost = EventId(record.leader, record.epoch, record.number)
        lose(state, OwedGap(notified, lost, record.at_us, record.reason))
