"""Notification of one session, for the subscriptions that an event matched (SPEC J-04)."""

from __future__ import annotations

from operator import attrgetter

from wanderbus import records
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow

by_number = attrgetter("number")
"""Order of subscriptions in a notification."""


def notification_of(session: SessionRow, number: int, rows: list[SubscriptionRow]) -> records.Notified:
    """Return the notification with this number for the subscriptions of one session."""
    identities: list[str] = []
    bound: list[tuple[str, str]] = []
    for row in rows:
        subscription = row.subscription
        identities.append(subscription.id)
        if subscription.device is not None:
            bound.append((subscription.id, subscription.device))
    return records.Notified(session.user, session.name, number, tuple(identities), tuple(bound))
