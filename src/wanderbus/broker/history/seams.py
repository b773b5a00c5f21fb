"""Seams between the logs of the leaders of a channel, for subscriptions that read the past (SPEC J-08, T-05).

A subscription reads the log of one leader after the other, in the order of the epochs. Each has a cursor in one of
them, with the epoch. If a former leader cannot answer, or its log lacks records, the subscription gets a gap there.
"""

from __future__ import annotations

from typing import Final

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.groups.leaderships import Leaderships
from wanderbus.broker.messages import HistoryFailed, HistoryRead
from wanderbus.broker.publish.notifying import notification_of
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow

PATIENCE_S: Final = 30.0
"""Time for which a subscription waits for a former leader that cannot answer."""

HISTORY_LOST: Final = "history_lost"
"""Reason of the gap in place of events of a former leader."""


class Seams:
    """The next log of subscriptions that have read that of a leader, and gaps if they could not."""

    def __init__(self, basics: Basics, leaderships: Leaderships) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._channels = basics.channels
        self._leaderships = leaderships
        self._silent_since: dict[str, float] = {}
        """Monotonic second since which the former leader of each of these subscriptions does not answer."""

    def is_former(self, row: SubscriptionRow) -> bool:
        """Return whether a subscription reads the log of a leader that leads its channel no longer."""
        epoch = row.history[0].epoch
        return epoch > 0 and self._leaderships.of(row.subscription.subject)[-1].epoch != epoch

    def end_here(self, row: SubscriptionRow) -> int | None:
        """Return the end of what a subscription reads in the log of this server, None if that still grows."""
        epoch = row.history[0].epoch
        led = self._leaderships.range_of(row.subscription.subject, epoch) if epoch else None
        return None if led is None else led.end

    def is_over(self, row: SubscriptionRow, given: HistoryRead) -> bool:
        """Return whether a piece ends where its leader has led the channel no longer."""
        end = self.end_here(row) if row.history[0].server == self._state.server else None
        return given.is_over if end is None else given.end >= end

    def following(self, row: SubscriptionRow) -> records.LogPlace | None:
        """Return where the next leader began, None if it is unknown yet; that server alone knows its first number."""
        subject, state = row.subscription.subject, self._state
        led = self._leaderships.after(subject, row.history[0].epoch)
        if led is None:
            return None
        own = self._leaderships.range_of(subject, led.epoch) if led.server == state.server else None
        if own is None:
            return records.LogPlace(led.server, 0, 0, led.epoch)
        return records.LogPlace(led.server, state.incarnation, own.first, led.epoch)

    def goes_on(self, row: SubscriptionRow, given: HistoryRead) -> bool:
        """Return whether a subscription goes on behind a gap if its log cannot be read, instead of ending.

        It does at a former leader, and with what is kept by one that it has just begun to read.
        """
        span = row.history[0]
        if not span.epoch or self.is_former(row):
            return span.epoch > 0
        if given.kept_from <= span.next:
            return False
        led = self._leaderships.range_of(row.subscription.subject, span.epoch)
        return not span.incarnation if led is None else span.next <= led.first

    def gives_up(self, row: SubscriptionRow) -> bool:
        """Return whether a subscription waits no longer for a leader that does not answer."""
        if not self.is_former(row):
            return False
        server, now = row.history[0].server, self._links.now
        since = self._silent_since.setdefault(row.subscription.id, now)
        is_gone = self._channels is None or server not in (*self._channels.others, self._state.server)
        return is_gone or now - since >= PATIENCE_S

    def answered(self, identity: str) -> None:
        """Note that a leader has answered for a subscription, or that the subscription has ended."""
        self._silent_since.pop(identity, None)

    def lose(self, session: SessionRow, row: SubscriptionRow, reason: str) -> None:
        """Put a gap in place of what a leader cannot answer."""
        self.answered(row.subscription.id)
        notified = notification_of(session, session.next, [row])
        lost = records.EventsLost(at_us=self._state.wall_us, reason=HISTORY_LOST, notified=(notified,))
        self._journal.write(lost, urgent=True)
        self._journal.emit(HistoryFailed(row.subscription.id, reason, goes_on=True))
        self._links.notify(session, [row.subscription.id])
