"""Delivery of an accepted event: the sessions that get it, for which subscriptions (SPEC B-01, J-04; DESIGN 5.1).

The event may have been accepted by this server or by another one: see :mod:`wanderbus.broker.publish.acceptance`.
"""

from __future__ import annotations

from operator import attrgetter

from wanderbus import records
from wanderbus.broker.links import Links
from wanderbus.broker.publish.decisions import Delivered
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.event import Event
from wanderbus.subscription import Subscription

by_number = attrgetter("number")
"""Order of subscriptions in a notification."""


class Delivery:
    """Decides which sessions get an event; it records and sends nothing."""

    def __init__(
        self, state: BrokerState, links: Links, subscriptions: Subscriptions, queue_limits: QueueLimits
    ) -> None:
        self._state = state
        self._links = links
        self._subscriptions = subscriptions
        self._matcher = subscriptions.matcher
        self._queue_limits = queue_limits

    def deliver(self, event: Event, acceptance: records.Acceptance, received_us: int) -> Delivered:
        """Return the notifications of an accepted event; ``received_us`` is the last reading of the wall clock."""
        expired: list[Subscription] = []
        behind: list[str] = []
        matched, restricted = self._generated(event, received_us, expired, behind)
        matcher = self._matcher
        undecided = matcher.work.take_undecided(event)
        if matcher.is_kernel_due:
            self._subscriptions.ask_for_kernel()
        notified: list[tuple[SessionRow, records.Notified]] = []
        recorded: list[records.Notified] = []
        for key, rows in matched.items():
            session = self._state.sessions[key]
            notification = notification_of(session, session.next, rows)
            notified.append((session, notification))
            recorded.append(notification)
        decided = recorded
        if undecided:
            decided = [each for each in recorded if not all(one in undecided for one in each.subscriptions)]
        full = self._queue_limits.refuses(event.subject, acceptance.event, decided)
        delivery = records.Delivery(tuple(recorded), tuple(restricted))
        return Delivered(delivery, notified, undecided, expired, behind, full)

    def _generated(
        self, event: Event, received_us: int, expired: list[Subscription], behind: list[str]
    ) -> tuple[dict[str, list[SubscriptionRow]], list[tuple[str, int]]]:
        """Return the subscriptions that ``event`` notifies, by the key of their session.

        Also return the subscriptions whose restrictions blocked a notification, with the place of the first such
        restriction. Add the matching subscriptions that have expired to ``expired``, and those that are not live yet
        to ``behind``.
        """
        matched: dict[str, list[SubscriptionRow]] = {}
        restricted: list[tuple[str, int]] = []
        state = self._state
        rows = list(map(state.subscriptions.__getitem__, self._matcher.matching(event)))
        if len(rows) > 1:
            rows.sort(key=by_number)
        for row in rows:
            subscription = row.subscription
            if subscription.expires_us is not None and subscription.expires_us <= state.wall_us:
                expired.append(subscription)
            elif row.history:
                behind.append(subscription.id)
            elif subscription.restrictions and (place := self._blocked(row, event, received_us)) is not None:
                restricted.append((subscription.id, place))
            elif (key := session_key(subscription.owner, subscription.session)) in matched:
                matched[key].append(row)
            else:
                matched[key] = [row]
        return matched, restricted

    def _blocked(self, row: SubscriptionRow, event: Event, received_us: int) -> int | None:
        return blocked_by(
            row.subscription.restrictions,
            now_us=self._state.wall_us,
            received_us=received_us,
            last_us=row.last_us,
            away=self._links.status(row.subscription.owner) == "DISCONNECTED",
            event=event,
            kinds=self._subscriptions.kinds,
        )


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
