"""Whole histories of weeks keep every promise, have enough in them, and repeat themselves to the byte (SPEC U-07)."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wanderbus.simulation.scenario import Result
from wanderbus.simulation.weeks.scenario import WeeksScenario

ROOT = Path(__file__).resolve().parents[2]
DOZEN = range(1, 13)
REPLAY = """
import hashlib
from wanderbus.simulation.weeks.scenario import WeeksScenario
scenario = WeeksScenario(7, keep_trace=True)
result = scenario.run()
print(result.fingerprint, hashlib.sha256("\\n".join(scenario.world.trace).encode()).hexdigest())
"""

result_of = functools.cache(WeeksScenario.run_seed)
"""Result of a seed, computed once for all tests."""


@pytest.mark.parametrize("seed", DOZEN)
def test_every_promise_holds_over_weeks(seed: int) -> None:
    assert result_of(seed).problems == []


def test_a_dozen_worlds_have_enough_happening_in_them() -> None:
    """Checkers would accept any world without events; the bounds are a fifth of the expected values."""
    results: list[Result] = [result_of(seed) for seed in DOZEN]
    least = {
        "days": 84,
        "devices": 12,
        "events": 500,
        "matches": 400,
        "restricted": 200,
        "dropped": 150,
        "subscriptions": 40,
        "links": 110,
        "server_crashes": 3,
        "clock_jumps": 5,
        "engine_events": 50,
        "detections": 200,
    }
    sums = {name: sum(result.counts[name] for result in results) for name in least}
    assert {name: count for name, count in sums.items() if count < least[name]} == {}


def test_u07_other_seeds_give_other_worlds() -> None:
    assert len({result_of(seed).fingerprint for seed in DOZEN}) == len(DOZEN)


@pytest.mark.integration
def test_u07_a_seed_is_replayed_byte_for_byte_under_any_hash_seed() -> None:
    """No order of a set or of hashes may leak into a history, or a failure could not be replayed elsewhere."""
    scenario = WeeksScenario(7, keep_trace=True)
    fingerprint = scenario.run().fingerprint
    trace = scenario.world.trace or []
    assert len(trace) > 300
    expected = f"{fingerprint} {hashlib.sha256(chr(10).join(trace).encode()).hexdigest()}"
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            [sys.executable, "-c", REPLAY], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected
