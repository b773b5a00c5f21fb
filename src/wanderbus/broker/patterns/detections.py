"""Detections of the patterns to which users subscribe: matched by the broker's clock, and delivered (SPEC T-07, S-06).

An event waits in the pattern until the clock has passed it, because another one may come at the same instant. So a
timer follows each event, and one each end of a time within which something must not occur.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus import protocol, records
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.links import Links
from wanderbus.broker.messages import PastEvent
from wanderbus.broker.publish.acceptance import checked_bytes
from wanderbus.broker.publish.notifying import notification_of
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.past_check import past_blocked_by
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import EventError
from wanderbus.event import Event, EventId
from wanderbus.machine import SetTimer
from wanderbus.patterns import Detection
from wanderbus.subscription import Subscription

TIMER: Final = ("detections",)
"""Key of the timer of the next match."""

A_STEP_MAX: Final = 64
"""Patterns that one step of the broker matches; bounds the time that others wait."""

TOO_LARGE: Final = "event_bytes_max"
"""Bound under which a detection is lost that cannot be an event, because its attributes are too large."""


class Detections:
    """Matches the patterns that are due, and notifies their subscriptions."""

    def __init__(
        self, state: BrokerState, journal: Journal, links: Links, queue_limits: QueueLimits, kinds: CustomRestrictions
    ) -> None:
        self.is_paused = False
        """True if nothing is matched because the disk has no room for the records."""
        self.received_us = 0
        """The last reading of the wall clock."""
        self._state = state
        self._journal = journal
        self._links = links
        self._queue_limits = queue_limits
        self._kinds = kinds
        self._timer_us: int | None = None
        """Time of the broker's clock for which the timer is set."""

    def go_on(self, now: float) -> None:
        """Match what is due, at monotonic second ``now``, and set the timer for the rest."""
        if self.is_paused:
            return
        state = self._state
        for identity in state.patterns.due(state.wall_us, A_STEP_MAX):
            self._match(state.subscriptions[identity], state.wall_us)
        next_us = state.patterns.next_us
        if next_us != self._timer_us and next_us is not None:
            self._journal.emit_now(SetTimer(TIMER, now + max(0, next_us - state.wall_us) / 1e6))
        self._timer_us = next_us

    def timer_fired(self) -> None:
        """Forget the timer, which is set again if the clock has not reached its time yet."""
        self._timer_us = None

    def finish(self, subscription: Subscription) -> None:
        """Match what has happened before a subscription ends; does nothing for one without a pattern."""
        end_us = self._state.wall_us + 1
        if self._state.patterns.is_due(subscription.id, end_us):
            self._match(self._state.subscriptions[subscription.id], end_us)

    def _match(self, row: SubscriptionRow, now_us: int) -> None:
        """Match a pattern up to ``now_us`` of the broker's clock; record and send what it detects."""
        state, subscription = self._state, row.subscription
        watermark_us, detections = state.patterns.advance(subscription.id, now_us)
        session = state.sessions[session_key(subscription.owner, subscription.session)]
        decided: list[records.MatchedEvent] = []
        too_large: set[EventId] = set()
        number, last_us = session.next, row.last_us
        for detection in detections:
            if subscription.expires_us is not None and detection.at_us >= subscription.expires_us:
                continue
            data = _event_of(detection)
            event = self._event(len(decided), data or _short(detection))
            place = past_blocked_by(subscription, event, last_us, self._links, self._kinds)
            notified = (notification_of(session, number, [row]),) if place is None else ()
            restricted = () if place is None else ((subscription.id, place),)
            if notified:
                number, last_us = number + 1, event.at_us
            if data is None:
                too_large.add(event.id)
            raw = msgspec.Raw(event.event)
            decided.append(records.MatchedEvent(event.id, event.at_us, raw, notified, restricted))
        record = records.Detected(
            at_us=state.wall_us, subscription=subscription.id, watermark_us=watermark_us, events=tuple(decided)
        )
        self._journal.write(record, urgent=bool(decided))
        for each in decided:
            self._send(session, each, is_too_large=each.id in too_large)

    def _event(self, place: int, data: bytes) -> PastEvent:
        """Return the detection at ``place`` in the next record as an event with an id of its own."""
        state = self._state
        origin = f"{state.server}#{place}" if place else state.server
        identity = EventId(origin, state.incarnation, state.offset)
        return PastEvent(state.offset, identity, state.wall_us, self.received_us, data)

    def _send(self, session: SessionRow, event: records.MatchedEvent, *, is_too_large: bool) -> None:
        """Bound the queue, and send what the windows allow; a detection that is too large becomes a gap."""
        for notified in event.notified:
            if is_too_large:
                undecided = dict.fromkeys(notified.subscriptions, Undecided(TOO_LARGE, 0))
                self._queue_limits.leave_undecided(session, notified, undecided)
            self._queue_limits.enforce(session, notified)
            self._links.notify(session, notified.subscriptions)


def _event_of(detection: Detection) -> bytes | None:
    """Return the bytes of a detection as an event, None if it is too large for one."""
    try:
        return checked_bytes(detection.to_event())
    except EventError:
        return None


def _short(detection: Detection) -> bytes:
    return protocol.encode_event(Event(detection.subject, {"detection": detection.id}, detection.at_us))
