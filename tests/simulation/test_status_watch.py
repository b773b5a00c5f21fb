"""ECIAgent Status, User Status and Remote Media Status never differ, and a world in which they do reports it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wanderbus.broker.links import Links
from wanderbus.mobility.session.calls import Calls
from wanderbus.simulation.nat.scenario import NATScenario
from wanderbus.simulation.scenario import Result
from wanderbus.simulation.system.scenario import SystemScenario

SEEDS = range(1, 9)


@pytest.mark.parametrize("run", [SystemScenario.run_seed, NATScenario.run_seed])
def test_e07_statuses_are_equal_after_every_step(run: Callable[[int], Result]) -> None:
    assert [problem for seed in SEEDS for problem in run(seed).problems] == []


@pytest.mark.parametrize("whose", ["the agent is", "the user is"])
def test_a_media_status_that_stays_is_noticed(monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    monkeypatch.setattr(Calls, "set_media_status", lambda self, call, media: [])
    problems = [problem for seed in SEEDS for problem in SystemScenario.run_seed(seed).problems]
    assert any(whose in problem for problem in problems), problems[:5]


def test_a_user_status_that_stays_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Links, "status", lambda self, user: "CONNECTED")
    problems = [problem for seed in SEEDS for problem in SystemScenario.run_seed(seed).problems]
    assert any("the user is CONNECTED and the media are DISCONNECTED" in problem for problem in problems)
