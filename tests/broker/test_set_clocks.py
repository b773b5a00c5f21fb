"""A broker whose wall clock is set, forward and back: which rule uses which clock (DESIGN 5.8, SPEC X26, X27)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.desk import START_US, Desk
from wanderbus import records
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import Frequency, Interval

HOUR_US = 3_600_000_000
SLEW = BrokerConfig().clock_slew_max


class ClockDesk(Desk):
    """A desk with a wall clock that shows ``set_us`` too much."""

    set_us = 0

    @property
    def wall_us(self) -> int:
        return super().wall_us + self.set_us


JUMPS = st.dictionaries(st.integers(1, 130), st.sampled_from([HOUR_US, -HOUR_US, 24 * HOUR_US, 300_000]), max_size=6)


@given(jumps=JUMPS)
def test_g05_x17_a_lifetime_is_right_to_within_the_slew_whatever_is_done_to_the_clock(jumps: dict[int, int]) -> None:
    desk = ClockDesk()
    link = desk.attach()
    desk.subscribed(link, lifetime_s=100.0)
    for second in range(1, 131):
        desk.now = float(second)
        desk.set_us += jumps.get(second, 0)
        desk.publish(link, second)
    heard = desk.stream(link)
    assert heard == list(range(1, len(heard) + 1))
    assert 100 / (1 + SLEW) - 1 <= len(heard) <= 100 / (1 - SLEW)


@given(jumps=JUMPS, period_s=st.integers(5, 40))
def test_h05_a_period_is_right_to_within_the_slew_whatever_is_done_to_the_clock(
    jumps: dict[int, int], period_s: int
) -> None:
    desk = ClockDesk()
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(float(period_s)),))
    for second in range(1, 131):
        desk.now = float(second)
        desk.set_us += jumps.get(second, 0)
        desk.publish(link, second)
    heard = [int(str(n)) for n in desk.stream(link)]
    for earlier, later in pairwise(heard):
        assert period_s / (1 + SLEW) <= later - earlier <= period_s / (1 - SLEW) + 1


def test_x27_a_window_opens_and_shuts_at_once_when_the_clock_is_set() -> None:
    desk = ClockDesk()
    link = desk.attach()
    desk.subscribed(link, restrictions=(Interval(START_US + HOUR_US, START_US + 2 * HOUR_US),))
    desk.publish(link, 1)
    desk.set_us = HOUR_US
    desk.publish(link, 2)
    desk.set_us = 0
    desk.publish(link, 3)
    assert desk.stream(link) == [2]
    assert [record.acceptance.received_us for record in desk.written(records.Published)] == [
        None,
        START_US + HOUR_US,
        None,
    ]


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_restart_with_an_earlier_clock_restores_no_expired_subscription(with_rows: bool) -> None:
    """The clock goes on from the last record, be that in the log or in the rows alone."""
    desk = ClockDesk(BrokerConfig(sweep_s=None))
    link = desk.attach()
    desk.subscribed(link, "N == 1", lifetime_s=10.0)
    desk.later(20.0)
    desk.publish(link, 7)
    desk.save()
    desk.set_us = -HOUR_US
    desk.restart(with_rows=with_rows)
    link = desk.attach(epoch=2)
    desk.publish(link, 1)
    assert desk.stream(link) == []
    ats = [record.at_us for record in desk.written(records.Published)]
    assert ats == sorted(ats)
