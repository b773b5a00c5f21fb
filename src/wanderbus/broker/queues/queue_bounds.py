"""Bounds of a queue: which one a number of notifications and bytes exceeds, and the lengths that bounds are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus.broker.queues.queue import SubscriptionQueue
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow
from wanderbus.subscription import QueuePolicy

OWN: Final = "subscription."
"""Prefix of the name of a subscription's own bound."""

UNBOUNDED: Final = QueuePolicy()


def exceeded(policy: QueuePolicy, waiting: int, waiting_bytes: int) -> str | None:
    """Return the bound that so many notifications and bytes exceed."""
    if policy.notifications_max is not None and waiting > policy.notifications_max:
        return "queue.notifications_max"
    if policy.bytes_max is not None and waiting_bytes > policy.bytes_max:
        return "queue.bytes_max"
    return None


def is_unbounded(row: SubscriptionRow) -> bool:
    """Return whether a subscription has no bounds of its own."""
    return row.subscription.queue == UNBOUNDED


def length_for(reason: str) -> Callable[[SubscriptionQueue], int]:
    """Return the length of a queue that counts for the bound ``reason``."""
    return _waiting if reason == "queue.notifications_max" else _bytes_waiting


def queued_bytes(session: SessionRow) -> int:
    """Return the bytes that wait for a session."""
    return session.queued_bytes


def _waiting(queue: SubscriptionQueue) -> int:
    return queue.waiting


def _bytes_waiting(queue: SubscriptionQueue) -> int:
    return queue.queued_bytes
