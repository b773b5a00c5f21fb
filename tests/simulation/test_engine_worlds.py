"""T-06: an engine beside the server keeps every promise in whole worlds: late, away, killed, naming too much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wanderbus.broker.engine.requests import EngineRequests
from wanderbus.broker.history import catch_up
from wanderbus.broker.state import engine_events, state
from wanderbus.records import Matched, decode_record
from wanderbus.simulation.system.engine_scenario import EngineScenario


@pytest.mark.parametrize("seed", range(1, 7))
def test_t06_nothing_is_lost_repeated_or_reordered(seed: int) -> None:
    scenario = EngineScenario(seed)
    assert scenario.run().problems == []
    written = [decode_record(payload) for _, _, payload in scenario.server.disk.log]
    assert any(isinstance(each, Matched) for each in written)


@pytest.mark.parametrize("seed", [2])
def test_t06_small_pieces_and_few_held_events_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "PIECE_RECORDS_MAX", 20)
    monkeypatch.setattr(catch_up, "PIECE_EVENTS_MAX", 5)
    monkeypatch.setattr(catch_up, "HELD_MAX", 3)
    assert EngineScenario.run_seed(seed).problems == []


def problems() -> Iterator[str]:
    return (problem for seed in range(1, 7) for problem in EngineScenario.run_seed(seed).problems)


def test_t06_the_checker_finds_a_watermark_that_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(given, record):  # type: ignore[no-untyped-def]
        before = given.servers[given.server].engine_next
        engine_events.apply_matched(given, record)
        given.servers[given.server].engine_next = before

    monkeypatch.setattr(state, "apply_matched", forgets)
    assert any("again" in each or "unexpected" in each or "order" in each for each in problems())


def test_t06_the_checker_finds_an_engine_that_is_asked_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = EngineRequests._deliver

    def skips(self, given):  # type: ignore[no-untyped-def]
        deliver(self, given)
        self._events.reach(given.next + 1)

    monkeypatch.setattr(EngineRequests, "_deliver", skips)
    assert any("lost" in each for each in problems())
