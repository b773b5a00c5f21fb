"""From a publish to its notifications: recognise repeats, match, restrict, number, bound the queues."""

from __future__ import annotations

from wanderbus import records
from wanderbus.broker import protocol
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.journal import Journal
from wanderbus.broker.links import Link, Links
from wanderbus.broker.restrictions import blocked_by
from wanderbus.broker.state import (
    BrokerState,
    SessionRow,
    SubscriptionRow,
    device_key,
    session_key,
)
from wanderbus.broker.subscribing import Subscriptions
from wanderbus.errors import EventError
from wanderbus.event import Event, EventId, check_event
from wanderbus.limits import EVENT_BYTES_MAX


class Publishing:
    """Decides what becomes of each published event."""

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        links: Links,
        subscriptions: Subscriptions,
        config: BrokerConfig,
    ) -> None:
        self._state = state
        self._journal = journal
        self._links = links
        self._subscriptions = subscriptions
        self._config = config

    def publish(self, link: Link, epoch: int, message: protocol.Publish) -> None:
        """Accept an event into the log with its notifications, or refuse it; a repeat is answered as at first."""
        publisher = self._state.publishers.get(device_key(link.user, link.device))
        if publisher and publisher.epoch == epoch and message.number <= publisher.number:
            self._answer_repeat(link, message.number, publisher.recent.get(message.number))
            return
        try:
            _check(message.event)
        except EventError as error:
            self._links.say(link, protocol.PublishRefused(message.number, protocol.shortened(error)))
            return
        notified = self._notified(message.event)
        offset = self._journal.write(
            records.Published(
                at_us=self._state.wall_us,
                event=message.event,
                user=link.user,
                device=link.device,
                epoch=epoch,
                number=message.number,
                notified=tuple(notified),
            ),
            urgent=True,
        )
        self._links.say(
            link,
            protocol.PublishAccepted(message.number, EventId(self._state.server, offset)),
        )
        for notification in notified:
            session = self._state.sessions[session_key(notification.user, notification.session)]
            self._bound_queue(session, notification)
            self._links.pump(session)

    def _answer_repeat(self, link: Link, number: int, offset: int | None) -> None:
        if offset is None:
            self._links.say(
                link,
                protocol.PublishRefused(number, "it was refused, or accepted too long ago to tell"),
            )
        else:
            self._links.say(
                link,
                protocol.PublishAccepted(number, EventId(self._state.server, offset)),
            )

    def _notified(self, event: Event) -> list[records.Notified]:
        """Return the notifications that ``event`` generates now, one a session (SPEC B-01, J-04)."""
        matched: dict[str, list[SubscriptionRow]] = {}
        for identity in self._subscriptions.matching(event):
            row = self._state.subscriptions[identity]
            subscription = row.subscription
            if subscription.expires_us is not None and subscription.expires_us <= self._state.wall_us:
                self._subscriptions.end(subscription, "expired")
            elif not self._blocked(row):
                matched.setdefault(session_key(subscription.owner, subscription.session), []).append(row)
        return [self._notification(self._state.sessions[key], rows) for key, rows in matched.items()]

    def _blocked(self, row: SubscriptionRow) -> bool:
        subscription = row.subscription
        if not subscription.restrictions:
            return False
        away = self._links.status(subscription.owner) == "DISCONNECTED"
        now_us = self._state.wall_us
        return blocked_by(subscription.restrictions, now_us=now_us, last_us=row.last_us, away=away) is not None

    def _notification(self, session: SessionRow, rows: list[SubscriptionRow]) -> records.Notified:
        subscriptions = [row.subscription for row in rows]
        return records.Notified(
            session.user,
            session.name,
            session.next,
            tuple(s.id for s in subscriptions),
            tuple((s.id, s.device) for s in subscriptions if s.device is not None),
        )

    def _bound_queue(self, session: SessionRow, notification: records.Notified) -> None:
        """Drop the oldest where a bound was passed (SPEC G-15, G-16, G-18)."""
        most = self._config.queue.notifications_max
        while most is not None and session.waiting > most:
            self._drop_oldest(session, None, "queue.notifications_max")
        for identity in notification.subscriptions:
            row = self._state.subscriptions[identity]
            most = row.subscription.queue.notifications_max
            while most is not None and row.waiting > most:
                self._drop_oldest(session, identity, "subscription.queue.notifications_max")

    def _drop_oldest(self, session: SessionRow, subscription: str | None, reason: str) -> None:
        number = session.first
        while entry := self._state.entry(session, number):
            number = entry.last + 1
            if entry.id and (subscription is None or subscription in entry.subscriptions):
                self._journal.write(
                    records.Dropped(
                        at_us=self._state.wall_us,
                        user=session.user,
                        session=session.name,
                        first=entry.number,
                        last=entry.last,
                        reason=reason,
                    ),
                    urgent=False,
                )
                return


def _check(event: Event) -> None:
    """Raise :class:`EventError` for an event that may not be published, or that no notification could carry."""
    check_event(event)
    if (size := protocol.size_of(event)) > EVENT_BYTES_MAX:
        raise EventError(f"the event takes {size} bytes, event_bytes_max is {EVENT_BYTES_MAX}")
