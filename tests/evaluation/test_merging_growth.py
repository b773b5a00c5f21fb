"""The slope of the time that merging takes (SPEC B-09)."""

from __future__ import annotations

import pytest

from wanderbus.evaluation.merging import growth
from wanderbus.evaluation.merging.growth import Growth
from wanderbus.evaluation.merging.methods import Method


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_slope_is_the_power_that_time_grows_with(power: float) -> None:
    sizes = (200, 400, 800)
    assert Growth(Method.PERFECT, sizes, tuple(3e-5 * size**power for size in sizes)).slope == pytest.approx(power)


def test_every_way_of_merging_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SIZES", (20, 40))
    found = list(growth.growths(0.9, 1))
    assert [each.method for each in found] == [Method.PERFECT, Method.IMPERFECT, Method.ADAPTIVE]
    assert all(each.sizes == (20, 40) and min(each.merge_s) > 0 for each in found)
