"""Events of other servers, applied to the state: their notifications, and how far this server has got (SPEC K-02)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus import records
from wanderbus.broker.state.rows import EventRow, LeaderRow

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


def apply_arrived(state: BrokerState, offset: int, record: records.Arrived) -> None:
    """Add the notifications of an event to the queues, and advance the position at its leader."""
    arrival, delivery = record.arrival, record.delivery
    state.leaders.put(arrival.leader, LeaderRow(arrival.epoch, arrival.number))
    if delivery.steps:
        state.patterns.take(offset, arrival.id, record)
    state.count_restricted(delivery.restricted)
    for notified in delivery.notified:
        # A session that was moved here may have brought the same event along.
        event = state.events.add_past(EventRow(arrival.id, record.at_us, bytes(arrival.event)))
        state.enqueue(notified, event)
