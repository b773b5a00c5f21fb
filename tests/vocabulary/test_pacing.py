"""A token bucket keeps its rate at any times of use (SPEC G-22, U-03)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.tokens import SLICE_S, bucket_of_slices

rates = st.floats(0.05, 20_000.0)
pauses = st.lists(st.one_of(st.just(0.0), st.floats(0.0, 0.05), st.floats(0.0, 30.0)), min_size=1, max_size=120)


@given(rates, pauses)
def test_g22_no_window_has_more_than_its_rate_and_one_burst(rate_per_s: float, pauses: list[float]) -> None:
    bucket, now, taken = bucket_of_slices(rate_per_s), 100.0, []
    for pause in pauses:
        now += pause
        taken += [now] * sum(bucket.take(now) for _ in range(3))
    burst = max(1.0, rate_per_s * SLICE_S)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + rate_per_s * (taken[last] - start) + 1e-3


@given(rates)
def test_g22_a_caller_that_waits_as_asked_gets_the_full_rate(rate_per_s: float) -> None:
    bucket, now, taken = bucket_of_slices(rate_per_s), 0.0, 0
    for _ in range(50):
        now = max(now, bucket.full_at())
        while bucket.take(now):
            taken += 1
    burst = max(1.0, rate_per_s * SLICE_S)
    assert taken == pytest.approx(rate_per_s * now + burst, abs=burst + 1)
