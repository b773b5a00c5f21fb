"""Requests to the matching engine: one at a time, from the watermark on (SPEC T-06; DESIGN 7.5).

The watermark is durable with the notifications of the events below it, as one record. So whatever is killed, the engine
is asked again from the last durable record on, and nothing is repeated or missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.engine.matched_delivery import MatchedDelivery
from wanderbus.broker.messages import MatchesRead, MatchesWanted
from wanderbus.broker.state.engine_events import is_waited_for
from wanderbus.machine import SetTimer

WATERMARK_RECORDS_MIN: Final = 65_536
"""Records after which the watermark is written although no event had a delivery: such records are in the log too."""

LOST_AGAIN_S: Final = 1.0
"""Pause after an engine that is lost again just after it has begun."""


class EngineRequests:
    """The request to the engine that waits for its answer."""

    def __init__(self, basics: Basics, events: EngineEvents, delivery: MatchedDelivery) -> None:
        self._conditions = basics.conditions
        self._state = basics.state
        self._journal = basics.journal
        self._filter_work_max = basics.config.filter_work_max
        self._events = events
        self._delivery = delivery
        self._asked: MatchesWanted | None = None
        self._number = 0
        self._has_to_begin = False
        self._not_before = 0.0
        self.away_since_us: int | None = None
        """Time since which the engine has not answered; None while it answers."""
        self._has_answered = False

    @property
    def is_waiting(self) -> bool:
        """Return whether events wait for the engine."""
        return self._events.is_waiting

    def row(self) -> Mapping[str, Any] | None:
        """Return the row that shows the engine to operators, None if no event is for it."""
        if not self._events.is_in_use:
            return None
        since_us = self.away_since_us
        return {
            "engine": records.SPARK,
            "state": "away" if since_us is not None else "answers" if self._has_answered else "not asked yet",
            "subjects": self._events.subjects,
            "away_s": None if since_us is None else (self._state.wall_us - since_us) / 1e6,
            "reason": self._events.away_reason,
            "matched_below": self._events.matched_below,
            "records_behind": self._events.records_behind,
            "remaining": self._events.remaining,
        }

    def go_on(self, now: float) -> None:
        """Request the next matches, at monotonic second ``now``."""
        if (
            self._asked is not None
            or self._conditions.is_disk_full
            or now < self._not_before
            or not self._events.is_in_use
        ):
            return
        state, events = self._state, self._events
        subscriptions = None
        if self._has_to_begin:
            if not events.is_waiting:
                events.reach(self._journal.durable)  # nothing below it is for the engine
            self._number = max(self._number + 1, state.wall_us)
            subscriptions = tuple(events.subscriptions())
        self._asked = MatchesWanted(
            self._number,
            events.matched_below,
            state.servers[state.server].engine_next,
            subscriptions,
            self._filter_work_max,
            events.parents,
        )
        self._journal.emit_now(self._asked)

    def read(self, given: MatchesRead, now: float) -> None:
        """Deliver matched events, unless this is not the answer to the request that waits."""
        asked = self._asked
        if asked is None or given.number != asked.number:
            return
        self._asked = None
        if given.is_lost and asked.subscriptions is None:
            self._has_to_begin = True
        elif given.is_lost or given.failed:
            self._is_away(given, now)
        else:
            self._has_to_begin, self._has_answered = False, True
            self.away_since_us = None
            self._events.note_away("")
            self._deliver(given)

    def _deliver(self, given: MatchesRead) -> None:
        decided = self._delivery.decide(given.events)
        self._events.reach(given.next)
        passed = given.next - self._state.servers[self._state.server].engine_next
        is_late = passed >= WATERMARK_RECORDS_MIN and is_waited_for(self._state)
        if decided.events or is_late:
            matched = records.Matched(at_us=self._state.wall_us, next=given.next, events=tuple(decided.events))
            bound = partial(self._delivery.bound, decided)
            self._journal.write_delivery(matched, bound, urgent=bool(decided.events))
        self._events.arrivals.reach(given.next, decided.matched)
        self._delivery.send(decided)

    def _is_away(self, given: MatchesRead, now: float) -> None:
        pause_s = given.retry_s or LOST_AGAIN_S
        if self.away_since_us is None:
            self.away_since_us = self._state.wall_us
        self._events.note_away(given.failed or "it is lost again as soon as it has begun")
        self._not_before = now + pause_s
        self._journal.emit_now(SetTimer(("engine",), self._not_before))
