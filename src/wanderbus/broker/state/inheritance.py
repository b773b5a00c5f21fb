"""Inheritance: a new subscription gets the queue of an ended one with the same request (decision 0035)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus.broker.state.rows import SubscriptionRow, device_key

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


def inherit(state: BrokerState, successor: SubscriptionRow, ended: SubscriptionRow) -> None:
    """Move the queue of an ``ended`` subscription, and what devices have got of it, to its ``successor``."""
    subscription, before = successor.subscription, ended.subscription.id
    session = state.ensure_session(subscription.owner, subscription.session)
    if (queue := state.queue.get(session.key)) is not None:
        queue.rename(before, subscription.id)
    successor.cursors, successor.settled, successor.history = ended.cursors, ended.settled, ended.history
    successor.taken, successor.read_below = ended.taken, ended.read_below
    ended.cursors, ended.settled, ended.history = None, session.next - 1, ()
    ended.successor = subscription.id
    state.tombstones.put(before, ended)
    for device in session.devices:
        key = device_key(session.user, device)
        row = state.devices[key]
        if row.redelivered and before in row.redelivered:
            row.redelivered[subscription.id] = row.redelivered.pop(before)
            state.devices.put(key, row)
