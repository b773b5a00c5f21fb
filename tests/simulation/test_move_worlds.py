"""L-01, T-07: a session that moves between servers takes the states of its patterns along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.state import pattern_states, running_pattern
from wanderbus.broker.state.pattern_states import PatternStates
from wanderbus.broker.state.rows import PatternRow
from wanderbus.event import EventId
from wanderbus.records import Arrived, Published
from wanderbus.simulation.weeks.move_scenario import MoveScenario

SEEDS = range(1, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_t07_moved_patterns_miss_and_repeat_nothing(seed: int) -> None:
    result = MoveScenario.run_seed(seed)
    assert result.problems == []
    assert result.counts["moves"]
    assert result.counts["detections"] > 10


def begin_again(patch: pytest.MonkeyPatch) -> None:
    """The next owner begins each pattern with an empty state."""

    def take_over(self: PatternStates, subscription: str, row: PatternRow) -> None:
        pattern = pattern_states.compiled(row.text)
        self._put(subscription, running_pattern.RunningPattern(row.owner, pattern, pattern.start()))

    patch.setattr(PatternStates, "take_over", take_over)


def trust_the_clock_of_the_next_owner(patch: pytest.MonkeyPatch) -> None:
    """Events at a server whose clock is behind are late for a pattern that came from one whose clock is ahead."""
    take = PatternStates.take

    def late(self: PatternStates, offset: int, identity: EventId, record: Published | Arrived) -> None:
        for subscription, _ in record.delivery.steps:
            running = self._running[subscription]
            if running.goes_by_receipt and record.at_us < running.state.watermark_us:
                return
        take(self, offset, identity, record)

    patch.setattr(PatternStates, "take", late)


@pytest.mark.parametrize("sabotage", [begin_again, trust_the_clock_of_the_next_owner])
def test_worlds_of_moves_notice(sabotage: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    assert is_noticed(MoveScenario.run_seed, [59])
