"""Seeded worlds whose sessions have patterns and move: each match is detected once (SPEC L-01, T-07)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.state import pattern_states
from wanderbus.broker.state.pattern_states import PatternStates
from wanderbus.broker.state.rows import PatternRow
from wanderbus.broker.state.running_pattern import RunningPattern
from wanderbus.event import EventId
from wanderbus.records import Arrived, Published
from wanderbus.simulation.handover.pattern_scenario import PatternHandoverScenario
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.scenario import Result

SEEDS = (1, 4, 6, 19, 44, 49, 66, 67)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [PatternHandoverScenario.run_seed(seed) for seed in SEEDS]


def test_l01_patterns_that_move_miss_and_repeat_nothing(results: list[Result]) -> None:
    failed = [each for each in results if each.problems]
    replays = [replay_command(Layer.PATTERN_HANDOVER, each.seed) for each in failed]
    assert [(replay, each.problems) for replay, each in zip(replays, failed, strict=True)] == []


def test_these_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (("patterns", 25), ("detections", 900), ("stepped", 60), ("moves", 25), ("crashes", 12)):
        assert sum(result.counts[field] for result in results) > least, field


def let_time_go_on(patch: Patch) -> None:
    """The watermark of a pattern that reads the log is the clock of its server."""
    watermark_us = RunningPattern.watermark_us

    def ahead(self: RunningPattern, now_us: int) -> int:
        return watermark_us(msgspec.structs.replace(self, read_us=None), now_us)

    patch.setattr(RunningPattern, "watermark_us", ahead)
    patch.setattr(RunningPattern, "due_us", property(lambda self: self.state.due_us + 1))


def take_live_events_first(patch: Patch) -> None:
    """Events that come while a pattern reads the log do not wait behind it."""
    take = PatternStates.take

    def at_once(self: PatternStates, offset: int, identity: EventId, record: Published | Arrived) -> None:
        read = {each: row.read_us for each, row in self._running.items()}
        for row in self._running.values():
            row.read_us = None
        take(self, offset, identity, record)
        for each, row in self._running.items():
            row.read_us = read[each]

    patch.setattr(PatternStates, "take", at_once)


def step_nothing_that_was_read(patch: Patch) -> None:
    patch.setattr(PatternStates, "take_read", lambda self, stepped: None)


def take_what_the_source_had(patch: Patch) -> None:
    apart: Any = Delivery._patterns_apart

    def again(self: Delivery, *arguments: Any) -> Any:
        return apart(self, *arguments[:-1], None)

    patch.setattr(Delivery, "_patterns_apart", again)


def hold_no_live_event(patch: Patch) -> None:
    """Live events that come while the last piece is read are forgotten."""
    patch.setattr(CatchUp, "hold", lambda self, behind, event, *, is_undecided: None)


def never_go_live(patch: Patch) -> None:
    patch.setattr(PatternStates, "go_live", lambda self, subscription: None)


def forget_in_a_restart_what_is_read(patch: Patch) -> None:
    loaded = pattern_states._loaded

    def live(row: PatternRow) -> Any:
        return loaded(msgspec.structs.replace(row, read_us=None))

    patch.setattr(pattern_states, "_loaded", live)


@pytest.mark.parametrize(
    ("break_product", "problem", "known"),
    [
        (let_time_go_on, " has ", (15,)),
        (take_live_events_first, " has ", (49,)),
        (step_nothing_that_was_read, " has not detected ", (49,)),
        (take_what_the_source_had, " has detected ", (19,)),
        (hold_no_live_event, " has missed ", (49,)),
        (never_go_live, " has not detected ", (49,)),
        (forget_in_a_restart_what_is_read, " has ", (15,)),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], problem: str, known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(PatternHandoverScenario.run_seed, known, problem)
