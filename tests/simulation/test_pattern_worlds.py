"""T-07: subscriptions to patterns keep every promise in whole worlds, and the checker finds broken guards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from wanderbus.broker.patterns.detections import Detections
from wanderbus.broker.state import engine_events, state
from wanderbus.broker.state.pattern_states import PatternStates
from wanderbus.broker.state.running_pattern import RunningPattern
from wanderbus.event import EventId
from wanderbus.records import Arrived, Detected, Published, decode_record
from wanderbus.simulation.system.pattern_scenario import PatternScenario

SEEDS = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_t07_nothing_is_lost_repeated_or_reordered(seed: int) -> None:
    scenario = PatternScenario(seed)
    assert scenario.run().problems == []
    written = [decode_record(payload) for _, _, payload in scenario.server.disk.log]
    assert any(isinstance(each, Detected) and each.events for each in written)


def problems() -> Iterator[str]:
    return (problem for seed in SEEDS for problem in PatternScenario.run_seed(seed).problems)


def forgets_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """The fold of a detection does not advance the automaton, so that a restart detects it again."""

    def forgets(given: Any, record: Detected) -> None:
        engine_events.apply_events(given, record.events)

    patch.setattr(state, "apply_detected", forgets)


def advances_without_a_record(patch: pytest.MonkeyPatch) -> None:
    """A match without a detection writes no record."""
    write = Detections._match

    def skips(self: Detections, *args: Any, **options: Any) -> float:
        journal = self._journal

        class Silent:
            def write(self, record: Detected, *, urgent: bool) -> None:
                if record.events:
                    journal.write(record, urgent=urgent)

        self._journal = Silent()  # type: ignore[assignment]
        done = write(self, *args, **options)
        self._journal = journal
        return done

    patch.setattr(Detections, "_match", skips)


def stores_nothing(patch: pytest.MonkeyPatch) -> None:
    """The state file has no rows of the patterns."""
    patch.setattr(PatternStates, "changes", lambda self: {})


def matches_at_once(patch: pytest.MonkeyPatch) -> None:
    """The watermark is above the present instant, so that another event of that instant is late."""
    watermark_us = RunningPattern.watermark_us
    patch.setattr(RunningPattern, "watermark_us", lambda self, now_us: watermark_us(self, now_us) + 2_000_000)


def loses_events(patch: pytest.MonkeyPatch) -> None:
    """The fold lets every seventh event take no part."""
    take = PatternStates.take

    def loses(self: PatternStates, offset: int, identity: EventId, record: Published | Arrived) -> None:
        if offset % 7:
            take(self, offset, identity, record)

    patch.setattr(PatternStates, "take", loses)


@pytest.mark.parametrize(
    "broken",
    [
        forgets_the_watermark,
        advances_without_a_record,
        stores_nothing,
        matches_at_once,
        loses_events,
    ],
)
def test_t07_the_checker_finds(broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    assert next(problems(), None) is not None
