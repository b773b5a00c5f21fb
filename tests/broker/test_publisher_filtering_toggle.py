"""Filtering at the publisher changes no delivery (SPEC N-03)."""

from __future__ import annotations

import pytest

from tests.broker.filtering_town import Town

SEEDS = 30
STEPS = 80


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_deliveries_are_the_same_with_filtering_on_and_off(first: int) -> None:
    held_back = delivered = 0
    for seed in range(first, first + 10):
        on, off = Town(seed, filtering=True), Town(seed, filtering=False)
        on.run(STEPS)
        off.run(STEPS)
        assert on.problems == off.problems == [], seed
        assert on.deliveries() == off.deliveries(), seed
        assert off.held_back == []
        held_back += len(on.held_back)
        delivered += sum(map(len, on.deliveries()))
    assert held_back > 100
    assert delivered > 100
