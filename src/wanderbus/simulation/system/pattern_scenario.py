"""Simulated history of subscriptions to patterns, while everything else goes on (SPEC T-07)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from wanderbus.patterns import Pattern, Seen, compile_pattern
from wanderbus.patterns.state import BEFORE_ALL_US
from wanderbus.records import Published, Subscribed
from wanderbus.simulation.system.checkers import check_items
from wanderbus.simulation.system.scenario import EXPRESSIONS, STOCKS, SystemScenario
from wanderbus.simulation.system.traveller import Traveller
from wanderbus.subscription import PATTERN

PATTERNS: Final = (
    "pattern rise by Stock match A: Trade (Price < 25) then not C: Trade (Price > 45) "
    "then B: Trade where (B.Price > A.Price) within 10 seconds",
    "pattern quiet by Stock match A: Trade (Price >= 40) then not B: Trade within 5 seconds emit quiet",
    "pattern pairs match A{1,2}: Trade (Stock == VALE3) then B: Trade (Stock == PETR4) within 4 seconds select every",
    "pattern late by Stock match A: Trade then B: Trade where (B.Price > A.Price) within 5 seconds "
    "on event time At lateness 2 seconds skip past last event",
)

LATE_S_MAX: Final = 5.0
"""Time by which an event's own time is before that of its publishing, at most: longer than the lateness above."""


class PatternScenario(SystemScenario):
    """The usual world; most subscriptions are to patterns, of all four kinds."""

    expressions = (*PATTERNS, EXPRESSIONS[0])

    def at_rest(self) -> bool:
        """Return whether all partial matches have ended too."""
        return super().at_rest() and self.server.state.patterns.next_us is None

    def check(self) -> list[str]:
        """Return the detections that differ from those of the log, for each subscription."""
        return [f"{each.name}: {problem}" for each in self.travellers for problem in self._check_traveller(each)]

    def _publish(self, traveller: Traveller) -> None:
        if traveller.running:
            draw = self.world.random
            at = datetime.fromtimestamp(self.world.wall_us / 1e6, UTC) - timedelta(seconds=draw.uniform(0, LATE_S_MAX))
            traveller.publish({"Stock": draw.choice(STOCKS), "Price": draw.randint(1, 50), "At": at})

    def _check_traveller(self, traveller: Traveller) -> Iterator[str]:
        for place, expression in enumerate(traveller.expressions, 1):
            if expression in PATTERNS:
                expected = self.expected(traveller.uri, expression)
                for problem in check_items(traveller, traveller.committed.items.get(place, ()), expected):
                    yield f"{compile_pattern(expression).name}: {problem}"

    def expected(self, user: str, text: str) -> list[object]:
        """Return the detections of a pattern in the log, from its subscription on, as one batch."""
        log = self.server.disk.records()
        begin = next(
            (
                offset
                for offset, record in enumerate(log)
                if isinstance(record, Subscribed)
                and record.subscription.language == PATTERN
                and (record.subscription.owner, record.subscription.expression) == (user, text)
            ),
            None,
        )
        if begin is None:
            return []
        pattern = compile_pattern(text)
        events = [(offset, record) for offset, record in enumerate(log) if isinstance(record, Published)]
        seen, watermark_us = _in_time(pattern, [each for each in events if each[0] > begin])
        if pattern.declaration.time_source == "receipt":
            watermark_us = self.world.wall_us
        _, found = pattern.advance(pattern.start(), seen, watermark_us)
        return [each.id for each in found]


def _in_time(pattern: Pattern, events: list[tuple[int, Published]]) -> tuple[list[Seen], int]:
    """Return the events of a pattern that are not late, and the last watermark."""
    kept: list[Seen] = []
    latest_us = BEFORE_ALL_US
    for offset, record in events:
        event = record.event
        leaves = pattern.leaves_of(event.subject, event.attributes)
        seen = pattern.seen(leaves, event.attributes, offset, str(record.acceptance.id), record.at_us)
        if seen is not None:
            if seen.time_us >= pattern.watermark_us(latest_us):
                kept.append(seen)
            latest_us = max(latest_us, seen.time_us)
    return kept, pattern.watermark_us(latest_us)
