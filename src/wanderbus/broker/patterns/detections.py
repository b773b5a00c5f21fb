"""Detections of the patterns to which users subscribe: matched by the broker's clock, and delivered (SPEC T-07, S-06).

An event waits in the pattern until the clock has passed it, because another one may come at the same instant. So a
timer follows each event, and one each end of a time within which something must not occur.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.messages import PastEvent
from wanderbus.broker.patterns.outcome import TOO_LARGE, PatternOutcome, lost_event, outcome_of
from wanderbus.broker.patterns.pattern_work import PER_S, TURN_UNITS, PatternWork
from wanderbus.broker.publish.notifying import notification_of
from wanderbus.broker.queues.queue_limits import Added
from wanderbus.broker.restrictions.past_check import past_blocked_by
from wanderbus.broker.state.rows import SubscriptionRow, session_key
from wanderbus.broker.state.running_pattern import Advance
from wanderbus.event import EventId
from wanderbus.machine import SetTimer
from wanderbus.parameters.broker import setting_of
from wanderbus.patterns.turns import Turn
from wanderbus.subscription import Subscription

TIMER: Final = ("detections",)
"""Key of the timer of the next match."""

RECORD_UNITS: Final = 8_000
"""Work of one turn of a pattern beside its steps: an event that waits for it, its record, and its stored row."""

A_STEP_MAX: Final = 64
"""Patterns that one step of the broker matches, as far as the work of :data:`TURN_UNITS` allows."""


class Detections:
    """Matches the patterns that are due, and notifies their subscriptions."""

    def __init__(self, basics: Basics) -> None:
        self._conditions = basics.conditions
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._queue_limits = basics.queue_limits
        self._kinds = basics.kinds
        self._work = PatternWork(basics.config)
        self._event_work_max = basics.config.pattern_work_max
        self._kept_max = basics.config.user_pattern_events_max
        self._timer_us: int | None = None
        """Time of the broker's clock for which the timer is set."""

    def go_on(self, now: float) -> None:
        """Match what is due, at monotonic second ``now``, and set the timer for the rest."""
        if self._conditions.is_disk_full or (not self._state.patterns and self._timer_us is None):
            return
        state = self._state
        units: float = TURN_UNITS
        for _ in range(A_STEP_MAX):
            if units <= 0 or (identity := self._next_due()) is None:
                break
            units -= self._match(state.subscriptions[identity], state.wall_us, units)
        times = [each for each in (state.patterns.next_us, self._work.next_us) if each is not None]
        next_us = min(times, default=None)
        if next_us != self._timer_us and next_us is not None:
            self._journal.emit_now(SetTimer(TIMER, now + max(0, next_us - state.wall_us) / 1e6))
        self._timer_us = next_us

    def _next_due(self) -> str | None:
        """Return a pattern that is due and whose owner has work left; let those wait whose owner has none."""
        state, now_us = self._state, self._state.wall_us
        while (identity := self._work.take_ready(now_us)) is not None:
            if state.patterns.is_due(identity, now_us):
                return identity
        for identity in iter(lambda: next(iter(state.patterns.due(now_us, 1)), None), None):
            owner = state.subscriptions[identity].subscription.owner
            if self._work.left(owner, now_us) > 0:
                return identity
            self._work.wait(owner, identity, now_us)
            self._journal.tally.note(setting_of(PER_S), owner, "events of patterns are matched later")
        return None

    def timer_fired(self) -> None:
        """Forget the timer, which is set again if the clock has not reached its time yet."""
        self._timer_us = None

    def finish(self, subscription: Subscription) -> None:
        """Match what has happened before a subscription ends; does nothing for one without a pattern.

        If its owner has no work left for all of it, the subscription gets a gap for the rest.
        """
        state = self._state
        end_us = state.wall_us + 1
        if state.patterns.is_due(subscription.id, end_us):
            self._match(state.subscriptions[subscription.id], end_us, math.inf, is_last=True)

    def _match(self, row: SubscriptionRow, now_us: int, units: float, *, is_last: bool = False) -> float:
        """Match a pattern up to ``now_us`` of the broker's clock, with at most ``units`` of work; return the work done.

        Record and send what it detects.
        """
        state, subscription = self._state, row.subscription
        owner, patterns = subscription.owner, state.patterns
        room = self._kept_max - patterns.kept_of(owner) + (patterns.kept(subscription.id) or 0)
        may = min(units, self._work.left(owner, state.wall_us))
        turn = Turn(may, self._event_work_max, room)
        advance = patterns.advance(subscription.id, now_us, turn)
        done = may - turn.units + RECORD_UNITS
        self._work.spend(owner, done, state.wall_us)
        pattern = advance.pattern
        outcomes = [outcome_of(pattern, match, self._event_work_max) for match in advance.matches]
        outcomes += [
            lost_event(pattern, seen.time_us, seen.id, Undecided(bound, value)) for seen, bound, value in turn.left_out
        ]
        if is_last and advance.steps is not None:
            outcomes.append(lost_event(pattern, state.wall_us - 1, "", Undecided(PER_S, 0)))
        self._record(row, advance, outcomes, tuple([seen.offset for seen, *_ in turn.left_out]))
        return done

    def _record(
        self, row: SubscriptionRow, advance: Advance, outcomes: Sequence[PatternOutcome], left_out: tuple[int, ...]
    ) -> None:
        """Record how far a pattern was matched, and send what its subscription gets."""
        state, subscription = self._state, row.subscription
        session = state.sessions[session_key(subscription.owner, subscription.session)]
        decided: list[records.MatchedEvent] = []
        added: list[Added] = []
        number, last_us = session.next, row.last_us
        for at_us, data, undecided in outcomes:
            if subscription.expires_us is not None and at_us >= subscription.expires_us:
                continue
            event = self._event(len(decided), data)
            place = None
            if undecided is None or undecided.bound == TOO_LARGE:
                place = past_blocked_by(
                    subscription.restrictions, subscription.owner, event, last_us, self._links, self._kinds
                )
            notified = [notification_of(session, number, [row])] if place is None else []
            restricted = () if place is None else ((subscription.id, place),)
            for notification in notified:
                number, last_us = number + 1, event.at_us
                added.append((session, notification, {} if undecided is None else {subscription.id: undecided}))
            raw = msgspec.Raw(event.event)
            decided.append(records.MatchedEvent(event.id, event.at_us, raw, tuple(notified), restricted))
        record = records.Detected(
            at_us=state.wall_us,
            subscription=subscription.id,
            watermark_us=advance.watermark_us,
            events=tuple(decided),
            left_out=left_out,
            steps=advance.steps,
            taken=advance.taken,
        )
        self._journal.write_delivery(record, lambda: self._queue_limits.bound(added), urgent=bool(decided))
        for _, notification, _ in added:
            self._links.notify(session, notification.subscriptions)

    def _event(self, place: int, data: bytes) -> PastEvent:
        """Return the detection at ``place`` in the next record as an event with an id of its own."""
        state = self._state
        origin = f"{state.server}#{place}" if place else state.server
        identity = EventId(origin, state.epoch, state.offset)
        return PastEvent(state.offset, identity, state.wall_us, self._conditions.received_us, data)
