"""T-05: subscriptions that begin in the past keep every promise in whole worlds, under kills, moves and bursts."""

from __future__ import annotations

import pytest

from wanderbus.broker.history import catch_up
from wanderbus.simulation.system.history_scenario import HistoryScenario


@pytest.mark.parametrize("seed", range(1, 9))
def test_t05_nothing_is_lost_repeated_or_reordered_at_the_seam(seed: int) -> None:
    scenario = HistoryScenario(seed)
    assert scenario.run().problems == []
    items = [item for each in scenario.travellers for several in each.committed.items.values() for item in several]
    assert any(getattr(item, "is_history", False) for item in items)


@pytest.mark.parametrize("seed", [2, 4])
def test_t05_small_pieces_and_few_held_events_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "PIECE_RECORDS_MAX", 20)
    monkeypatch.setattr(catch_up, "PIECE_EVENTS_MAX", 5)
    monkeypatch.setattr(catch_up, "HELD_MAX", 3)
    assert HistoryScenario.run_seed(seed).problems == []


def test_t05_the_checker_finds_a_seam_that_forgets_the_held_events(monkeypatch: pytest.MonkeyPatch) -> None:
    take = catch_up.CatchUp._take

    def forgetful(self, session, row, taken, events, *, is_history):  # type: ignore[no-untyped-def]
        return take(self, session, row, taken, events if is_history else [], is_history=is_history)

    monkeypatch.setattr(catch_up.CatchUp, "_take", forgetful)
    problems = [problem for seed in (1, 2, 4) for problem in HistoryScenario.run_seed(seed).problems]
    assert any("lost" in problem for problem in problems)


def test_t05_the_checker_finds_a_cursor_that_is_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    write = catch_up.CatchUp._write

    def early(self, session, row, taken, cursor, *rest):  # type: ignore[no-untyped-def]
        write(self, session, row, taken, cursor if cursor is None else cursor + 1, *rest)

    monkeypatch.setattr(catch_up.CatchUp, "_write", early)
    monkeypatch.setattr(catch_up, "PIECE_EVENTS_MAX", 5)
    problems = [problem for seed in (1, 2, 4) for problem in HistoryScenario.run_seed(seed).problems]
    assert any("lost" in problem for problem in problems)
