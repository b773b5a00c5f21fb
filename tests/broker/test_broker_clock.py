"""The broker's own clock: never backwards, never far from the pace of time, and in the end right (DESIGN 5.8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.broker.state.broker_clock import BrokerClock

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
SLEW = 0.1


def started(last_us: int = 0, slew: float = SLEW) -> BrokerClock:
    clock = BrokerClock(last_us, slew)
    clock.read(START_US, 0.0)
    return clock


def test_a_wall_clock_that_goes_evenly_is_shown_as_it_is() -> None:
    clock = started()
    for second in range(1, 1_000):
        assert clock.read(START_US + second * SECOND_US, float(second)) == START_US + second * SECOND_US


@pytest.mark.parametrize("drift", [-500e-6, 500e-6, -0.09, 0.09])
def test_a_wall_clock_that_is_slewed_is_followed_exactly(drift: float) -> None:
    clock = started()
    for second in range(1, 1_000):
        wall_us = START_US + round(second * (1 + drift) * SECOND_US)
        assert clock.read(wall_us, float(second)) == wall_us


def test_a_first_reading_is_that_of_the_wall_clock_or_the_last_of_the_log() -> None:
    assert BrokerClock(START_US - HOUR_US, SLEW).read(START_US, 5.0) == START_US
    assert BrokerClock(START_US + HOUR_US, SLEW).read(START_US, 5.0) == START_US + HOUR_US
    assert BrokerClock(0, SLEW).read(0, 0.0) == 0


def test_set_forward_by_an_hour_it_goes_at_eleven_tenths_until_it_is_there() -> None:
    clock = started()
    assert clock.read(START_US + HOUR_US, 0.0) == START_US
    assert clock.read(START_US + HOUR_US + 10 * SECOND_US, 10.0) == START_US + 11 * SECOND_US
    at_ten_hours = START_US + 10 * HOUR_US
    assert clock.read(at_ten_hours + HOUR_US, 36_000.0) == at_ten_hours + HOUR_US
    assert clock.read(at_ten_hours + HOUR_US + SECOND_US, 36_001.0) == at_ten_hours + HOUR_US + SECOND_US


def test_set_back_by_an_hour_it_goes_at_nine_tenths_until_it_is_there() -> None:
    clock = started()
    assert clock.read(START_US - HOUR_US, 0.0) == START_US
    assert clock.read(START_US - HOUR_US + 10 * SECOND_US, 10.0) == START_US + 9 * SECOND_US
    at_ten_hours = START_US + 10 * HOUR_US
    assert clock.read(at_ten_hours - HOUR_US, 36_000.0) == at_ten_hours - HOUR_US


def test_after_a_start_behind_the_log_it_waits_for_the_wall_clock_slowed_down() -> None:
    clock = BrokerClock(START_US + HOUR_US, SLEW)
    clock.read(START_US, 0.0)
    assert clock.read(START_US + 100 * SECOND_US, 100.0) == START_US + HOUR_US + 90 * SECOND_US


def test_a_host_that_slept_is_a_wall_clock_set_forward() -> None:
    clock = started()
    assert clock.read(START_US + 8 * HOUR_US, 1.0) == START_US + 1_100_000


def test_many_readings_in_a_microsecond_each_do_not_add_up_their_roundings() -> None:
    clock = started()
    for step in range(1, 100_001):
        shown = clock.read(START_US + HOUR_US, step * 3.3e-6)
    assert shown == START_US + round(330_000 * 1.1)


def test_a_wall_clock_that_trembles_is_followed_without_swinging() -> None:
    clock = started()
    for step in range(1, 10_000):
        tremble_us = 40 if step % 2 else -40
        shown = clock.read(START_US + step * 1_000 + tremble_us, step / 1_000)
        assert abs(shown - (START_US + step * 1_000)) <= 40


WORLDS = st.lists(
    st.tuples(st.floats(1e-6, 5_000.0), st.sampled_from([0, 0, 0, HOUR_US, -HOUR_US, 137, -137, 24 * HOUR_US])),
    min_size=1,
    max_size=60,
)


@given(steps=WORLDS, slew=st.sampled_from([0.0, 0.001, 0.1, 0.5, 1.0]), ahead_us=st.integers(-HOUR_US, HOUR_US))
def test_it_never_goes_back_and_never_leaves_the_pace_of_time(
    steps: list[tuple[float, int]], slew: float, ahead_us: int
) -> None:
    clock = BrokerClock(START_US + ahead_us, slew)
    now, set_us = 0.0, 0
    shown = clock.read(START_US, now)
    for passed, jump_us in steps:
        now, set_us = now + passed, set_us + jump_us
        before, shown = shown, clock.read(START_US + round(now * 1e6) + set_us, now)
        passed_us = passed * 1e6
        assert passed_us * (1 - slew) - 2 <= shown - before <= passed_us * (1 + slew) + 2
        assert shown >= before


@given(steps=WORLDS)
def test_it_comes_to_show_what_the_wall_clock_shows_and_does_not_overshoot(steps: list[tuple[float, int]]) -> None:
    clock = started()
    now, set_us = 0.0, 0
    for passed, jump_us in steps:
        now, set_us = now + passed, set_us + jump_us
        shown = clock.read(START_US + round(now * 1e6) + set_us, now)
    off_us = shown - (START_US + round(now * 1e6) + set_us)
    while off_us:
        now += 7_200.0
        before_us, off_us = off_us, clock.read(wall := START_US + round(now * 1e6) + set_us, now) - wall
        assert abs(off_us) <= max(0, abs(before_us) - 720 * SECOND_US + 2)
        assert off_us * before_us >= 0
