"""Processing of a publish: recognise repeats, match, restrict, refuse, number, bound the queues."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from operator import attrgetter

from wanderbus import protocol, records
from wanderbus.broker.links import Links
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.queues.queue_limits import Bounds
from wanderbus.broker.readers import Link
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import PublisherRow, SessionRow, SubscriptionRow, publisher_key, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.errors import EventError
from wanderbus.event import Event, check_event
from wanderbus.limits import EVENT_BYTES_MAX

_number = attrgetter("number")

DISK_FULL = "the disk of the broker is full; nothing was stored, try again later"


class Publishing:
    """Accepts or refuses each published event, and generates its notifications."""

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        links: Links,
        subscriptions: Subscriptions,
        bounds: Bounds,
        permissions: Permissions,
    ) -> None:
        self.received_us = 0
        """The last reading of the wall clock (DESIGN 5.8)."""
        self.disk_full = False
        """True if every event is refused because the log has no room."""
        self._state = state
        self._journal = journal
        self._links = links
        self._subscriptions = subscriptions
        self._bounds = bounds
        self._permissions = permissions
        self._sizes: dict[int, tuple[Event, int]] = {}
        """Prematched events and the bytes of each, by object identity."""

    def prematch(self, coming: Iterable[tuple[Link, protocol.Publish]]) -> None:
        """Match the coming publishes in one batch, except repeats and malformed events."""
        self._sizes.clear()
        if self.disk_full:
            return
        for link, message in coming:
            if link.session is not None and not self._repeated(link, message):
                with contextlib.suppress(EventError):  # publish() refuses it with the reason
                    self._sizes[id(message.event)] = message.event, _checked_size(message.event)
        if len(self._sizes) > 1:
            self._subscriptions.interests.prematch([event for event, _ in self._sizes.values()])

    def publish(self, link: Link, message: protocol.Publish) -> None:
        """Write an event with its notifications to the log, or refuse it; a repeat gets the first answer again."""
        outbox = message.outbox is not None
        if publisher := self._repeated(link, message):
            self._answer_repeat(link, message, publisher)
            return
        if outbox and not self._in_turn(link, message):
            return
        if self.disk_full:
            self._refuse(link, message, DISK_FULL, "disk_full")
            return
        if refusal := self._permissions.refusal(link.user, message.event.subject):
            self._refuse(link, message, refusal)
            return
        _, size = self._sizes.pop(id(message.event), (None, None))
        try:
            size = size or _checked_size(message.event)
        except EventError as error:
            self._refuse(link, message, protocol.shortened(error))
            return
        sessions, restricted = self._generated(message.event)
        undecided = self._subscriptions.interests.work.take_undecided(message.event)
        self._subscriptions.ask_for_kernel()
        notified = decided = [notification for _, notification in sessions]
        if undecided:
            decided = [each for each in notified if not all(one in undecided for one in each.subscriptions)]
        if limit := self._bounds.refuses(message.event.subject, size, decided):
            self._refuse(link, message, f"a destination queue is full ({limit}); try again later", limit)
            return
        published = records.Published(
            at_us=self._state.wall_us,
            event=message.event,
            user=link.user,
            device=link.device,
            epoch=self._epoch(link, message),
            number=message.number,
            notified=tuple(notified),
            restricted=tuple(restricted),
            received_us=None if self.received_us == self._state.wall_us else self.received_us,
            outbox=outbox,
        )
        offset = self._journal.write(published, urgent=True)
        # Notify the subscribers before the publisher is answered: they wait for the event itself.
        for session, notification in sessions:
            if undecided:
                self._bounds.leave_undecided(session, notification, undecided)
            self._bounds.enforce(session, notification)
            self._links.notify(session, notification.subscriptions)
        self._accept(link, message, offset)

    def _epoch(self, link: Link, message: protocol.Publish) -> int:
        """Return the epoch in which the message is numbered."""
        return self._state.devices[link.key].epoch if message.outbox is None else message.outbox

    def _repeated(self, link: Link, message: protocol.Publish) -> PublisherRow | None:
        """Return the publisher's row if it has used this number, or a higher one; None for a new number."""
        key = publisher_key(link.user, link.device, outbox=message.outbox is not None)
        publisher = self._state.publishers.get(key)
        if publisher is None or message.number > publisher.number:
            return None
        return publisher if publisher.epoch == self._epoch(link, message) else None

    def _answer_repeat(self, link: Link, message: protocol.Publish, publisher: PublisherRow) -> None:
        if (offset := publisher.recent.get(message.number)) is None:
            self._refuse(link, message, "this event was refused, or accepted too long ago to be remembered")
        else:
            self._accept(link, message, offset)

    def _in_turn(self, link: Link, message: protocol.Publish) -> bool:
        """Return whether all earlier events of the outbox were accepted; refuse the event if not.

        A number counts as a repeat once a higher one was accepted, so no event may overtake another (SPEC X25).
        """
        if link.held_up is None or message.number <= link.held_up[0]:
            link.held_up = None
            return True
        self._refuse(link, message, "an earlier event of the outbox must be accepted first", link.held_up[1])
        return False

    def _accept(self, link: Link, message: protocol.Publish, offset: int) -> None:
        identity = self._state.identity(offset)
        self._links.send(link, protocol.PublishAccepted(message.number, identity, message.outbox is not None))

    def _refuse(self, link: Link, message: protocol.Publish, reason: str, limit: str | None = None) -> None:
        outbox = message.outbox is not None
        if outbox and limit is not None and link.held_up is None:
            link.held_up = message.number, limit
        self._links.send(link, protocol.PublishRefused(message.number, reason, limit, outbox))

    def _generated(self, event: Event) -> tuple[list[tuple[SessionRow, records.Notified]], list[tuple[str, int]]]:
        """Return the notifications that ``event`` generates, one for each session (SPEC B-01, J-04).

        Also return the subscriptions whose restrictions blocked one, with the place of the first such restriction.
        """
        self._subscriptions.end_expired()
        matched: dict[tuple[str, str], list[SubscriptionRow]] = {}
        restricted = []
        rows = [self._state.subscriptions[each] for each in self._subscriptions.interests.matching(event)]
        rows.sort(key=_number)
        for row in rows:
            subscription = row.subscription
            if subscription.expires_us is not None and subscription.expires_us <= self._state.wall_us:
                self._subscriptions.end(subscription, "expired")
            elif subscription.restrictions and (place := self._blocked(row, event)) is not None:
                restricted.append((subscription.id, place))
            else:
                matched.setdefault((subscription.owner, subscription.session), []).append(row)
        sessions = [(self._state.sessions[session_key(*key)], of_session) for key, of_session in matched.items()]
        return [(session, self._notification(session, of_session)) for session, of_session in sessions], restricted

    def _blocked(self, row: SubscriptionRow, event: Event) -> int | None:
        return blocked_by(
            row.subscription.restrictions,
            now_us=self._state.wall_us,
            received_us=self.received_us,
            last_us=row.last_us,
            away=self._links.status(row.subscription.owner) == "DISCONNECTED",
            event=event,
            kinds=self._subscriptions.kinds,
        )

    def _notification(self, session: SessionRow, rows: list[SubscriptionRow]) -> records.Notified:
        subscriptions = [row.subscription for row in rows]
        return records.Notified(
            session.user,
            session.name,
            session.next,
            tuple([s.id for s in subscriptions]),
            tuple([(s.id, s.device) for s in subscriptions if s.device is not None]),
        )


def _checked_size(event: Event) -> int:
    """Return the bytes of an event; :class:`EventError` for one that may not be published or fits no notification."""
    check_event(event)
    if (size := protocol.size_of(event)) > EVENT_BYTES_MAX:
        raise EventError(f"the event takes {size} bytes; the limit is {EVENT_BYTES_MAX} (event_bytes_max)")
    return size
