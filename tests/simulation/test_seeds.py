"""Whole histories: a dozen seeds keep every promise, and a seed repeats itself to the byte (SPEC U-07, U-09)."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wanderbus.simulation.layers import SCENARIOS
from wanderbus.simulation.scenario import Result
from wanderbus.simulation.system.scenario import SystemScenario

ROOT = Path(__file__).resolve().parents[2]
DOZEN = range(1, 13)
REPLAY = """
from wanderbus.simulation.layers import SCENARIOS
for layer, kind in SCENARIOS.items():
    print(layer, kind(7).run().fingerprint)
"""


result_of = functools.cache(SystemScenario.run_seed)
"""Result of a seed, computed once for all tests."""


@pytest.mark.parametrize("seed", DOZEN)
def test_nothing_is_lost_repeated_or_reordered(seed: int) -> None:
    assert result_of(seed).problems == []


def test_a_dozen_seeds_have_enough_happening_in_them() -> None:
    """A checker would accept any history without events.

    One history may be quiet, and a change of the random choices changes them all, so the bounds are on the sums, a
    fifth or less of the expected values.
    """
    results: list[Result] = [result_of(seed) for seed in DOZEN]
    assert all(result.counts["events"] > 0 for result in results)
    assert sum(result.counts["events"] for result in results) > 200
    assert sum(result.counts["notifications"] for result in results) > 200
    assert sum(result.counts["address_changes"] for result in results) > 10
    assert sum(result.counts["agent_kills"] for result in results) > 2
    assert sum(result.counts["server_crashes"] for result in results) > 2
    travellers = [traveller for seed in DOZEN for traveller in SystemScenario(seed).travellers]
    assert sum(traveller.transport == "TCP" for traveller in travellers) > 2


def test_u07_the_same_seed_is_the_same_history() -> None:
    first, second = (SystemScenario(3, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace
    assert SystemScenario.run_seed(3).fingerprint == first.world.fingerprint() != SystemScenario.run_seed(4).fingerprint


@pytest.mark.integration
def test_u07_also_in_processes_that_hash_differently() -> None:
    """No order of a set or of hashes may leak into a history, or a failure could not be replayed elsewhere."""
    one, other = (_histories(each) for each in ("1", "4242"))
    assert len(one) == len(SCENARIOS)
    assert one == other


def _histories(hash_seed: str) -> list[str]:
    """Return the fingerprint of a history of each layer."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", REPLAY], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
