"""Weeks in which the server's clock is set by an hour or by ten years, also while it is down: every promise holds."""

from __future__ import annotations

import functools

import pytest

from wanderbus.broker.state.broker_clock import BrokerClock
from wanderbus.simulation.scenario import Result
from wanderbus.simulation.weeks.scenario import WeeksScenario

SEEDS = (3, 4, 23, 24, 33, 36, 37)
"""Worlds in which clocks are set several times, and servers crash."""

DAY_S = 86_400.0
DECADE_S = 3_650 * DAY_S


class DecadesScenario(WeeksScenario):
    """A history of weeks in which whoever sets the clock may set it by ten years, never to before 1971."""

    def _jump(self) -> None:
        draw = self.world.random
        by_s = draw.choice([3_600.0, DECADE_S]) * draw.choice([-1, 1])
        self.clock.jump(by_s if self.clock.read() / 1e6 + by_s > 365 * DAY_S else -by_s)


@functools.cache
def result_of(seed: int) -> Result:
    return DecadesScenario(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_x26_every_promise_holds_though_the_clock_is_set_by_ten_years(seed: int) -> None:
    """Nothing is lost or repeated; lifetimes and periods are right to within the slew, except over a restart."""
    assert result_of(seed).problems == []


def test_enough_happens_in_these_worlds() -> None:
    results = [result_of(seed) for seed in SEEDS]
    assert sum(result.counts["clock_jumps"] for result in results) >= 20
    assert sum(result.counts["server_crashes"] for result in results) >= 10
    assert sum(result.counts["matches"] for result in results) >= 200


def test_a_broker_that_believes_the_wall_clock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerClock, "read", lambda self, wall_us, now: wall_us)
    assert any(DecadesScenario(seed).run().problems for seed in SEEDS)
