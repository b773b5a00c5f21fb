"""When a notification may be generated (SPEC H-01 to H-11, X26 to X29)."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.desk import BOB, START_US, Desk
from wanderbus.broker.restrictions import blocked_by, check_restrictions
from wanderbus.errors import Refused
from wanderbus.subscription import Daily, Frequency, Interval, Restriction


def us(text: str, zone: str = "UTC") -> int:
    """The instant of a local date and time, in microseconds since the Unix epoch."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000


def passes(*restrictions: Restriction, now_us: int, last_us: int | None = None, away: bool = False) -> bool:
    return blocked_by(restrictions, now_us=now_us, last_us=last_us, away=away) is None


def test_h05_fifteen_seconds_pass_at_0_and_15_and_not_at_14(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(15.0),))
    for second in (0, 14, 15):
        desk.now = float(second)
        desk.publish(link, second)
    assert desk.stream(link) == [0, 15]


def test_h05_x26_each_subscription_counts_for_itself(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, "Stock == PETR4", restrictions=(Frequency(10.0),))
    desk.subscribed(link, "Stock == VALE3", restrictions=(Frequency(10.0),))
    for n, stock in enumerate(["PETR4", "VALE3", "PETR4", "VALE3"]):
        desk.publish(link, n, Stock=stock)
    assert desk.stream(link) == [0, 1]


@pytest.mark.parametrize("with_rows", [False, True])
def test_h05_the_period_goes_on_over_a_restart(desk: Desk, with_rows: bool) -> None:
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(15.0),))
    desk.publish(link, 0)
    desk.save()
    desk.later(5.0)
    desk.restart(with_rows=with_rows)
    link = desk.attach(resume=1, epoch=2)
    desk.publish(link, 5)
    desk.later(10.0)
    desk.publish(link, 15)
    assert desk.stream(link) == [15]


def test_h11_the_period_counts_from_a_queued_notification_too(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(15.0),))
    desk.close(link)
    bob = desk.attach(BOB)
    desk.publish(bob, 0)
    desk.later(5.0)
    back = desk.attach()
    desk.publish(bob, 5)
    desk.later(10.0)
    desk.publish(bob, 15)
    assert desk.stream(back) == [0, 15]


def test_h03_h11_what_another_restriction_forbids_does_not_count_as_generated(desk: Desk) -> None:
    window = Interval(START_US + 10_000_000, START_US + 100_000_000)
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(15.0), window))
    for second in (5, 10, 24, 25):
        desk.now = float(second)
        desk.publish(link, second)
    assert desk.stream(link) == [10, 25]


def test_b01_restrictions_of_what_does_not_match_are_not_counted(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, "N > 1", restrictions=(Frequency(15.0),))
    desk.publish(link, 1)
    desk.publish(link, 2)
    assert desk.stream(link) == [2]


def test_h02_a_restriction_for_away_holds_while_nobody_of_the_user_is_reached(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(1000.0, "away"),))
    bob = desk.attach(BOB)
    for n in (1, 2):
        desk.publish(bob, n)
    desk.close(link)
    desk.publish(bob, 3)
    second = desk.attach(device="laptop")
    desk.publish(bob, 4)
    desk.close(second)
    desk.publish(bob, 5)
    desk.later(1001.0)
    desk.publish(bob, 6)
    assert desk.stream(desk.attach()) == [1, 2, 4, 6]


def test_h03_the_first_in_order_that_forbids_is_the_reason() -> None:
    frequency, window = Frequency(10.0), Interval(0, 1)
    for order in ((frequency, window), (window, frequency)):
        assert blocked_by(order, now_us=5, last_us=4, away=False) is order[0]
    assert blocked_by((frequency, window), now_us=10_000_004, last_us=4, away=False) is window


def test_h02_what_does_not_apply_is_passed_over() -> None:
    closed = Interval(0, 1, "away")
    assert passes(closed, now_us=5)
    assert not passes(closed, now_us=5, away=True)
    assert not passes(Interval(0, 1), closed, now_us=5)


def test_h02_h08_an_open_window_for_away_does_not_help_who_is_there() -> None:
    assert not passes(Interval(0, 1), Interval(4, 9, "away"), now_us=5, away=False)
    assert passes(Interval(0, 1), Interval(4, 9, "away"), now_us=5, away=True)


@pytest.mark.parametrize(("at_us", "inside"), [(9, False), (10, True), (19, True), (20, False), (30, True), (39, True)])
def test_h07_h08_intervals_are_complementary_start_inside_end_outside(at_us: int, inside: bool) -> None:
    assert passes(Interval(10, 20), Interval(30, 40), now_us=at_us) is inside


@pytest.mark.parametrize(
    ("clock", "inside"),
    [
        ("15:59:59", False),
        ("16:00:00", True),
        ("16:30:00", True),
        ("16:59:59", True),
        ("17:00:00", False),
        ("17:01", False),
    ],
)
def test_h09_every_day_from_16_to_17(clock: str, inside: bool) -> None:
    for date in ("2024-02-29", "2026-08-01"):
        assert passes(Daily("16:00", "17:00"), now_us=us(f"{date} {clock}")) is inside


@pytest.mark.parametrize(
    ("clock", "inside"),
    [("21:59", False), ("22:00", True), ("23:59", True), ("00:00", True), ("05:59", True), ("06:00", False)],
)
def test_h09_x29_a_window_may_wrap_over_midnight(clock: str, inside: bool) -> None:
    assert passes(Daily("22:00", "06:00"), now_us=us(f"2026-03-10 {clock}")) is inside


def test_x27_the_zone_is_explicit_and_follows_its_summer_time() -> None:
    window = Daily("16:00", "17:00", "America/New_York")
    for date in ("2026-01-15", "2026-07-15"):
        assert passes(window, now_us=us(f"{date} 16:30", "America/New_York"))
        assert not passes(window, now_us=us(f"{date} 16:30", "UTC"))


def test_x27_seconds_may_be_given() -> None:
    assert passes(Daily("16:00:30", "16:00:31"), now_us=us("2026-03-10 16:00:30"))
    assert not passes(Daily("16:00:30", "16:00:31"), now_us=us("2026-03-10 16:00:31"))


def test_no_restriction_forbids_nothing() -> None:
    assert passes(now_us=0)


@given(
    minutes=st.lists(st.integers(0, 24 * 60 - 1), min_size=2, max_size=2, unique=True),
    at_us=st.integers(0, 2 * 86_400_000_000),
)
def test_h09_a_daily_window_and_its_complement_share_no_moment_and_leave_none_out(
    minutes: list[int], at_us: int
) -> None:
    start, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in minutes)
    assert passes(Daily(start, end), now_us=at_us) is not passes(Daily(end, start), now_us=at_us)
    clock = datetime.fromtimestamp(at_us / 1e6, UTC)
    minute = clock.hour * 60 + clock.minute
    first, last = minutes
    inside = first <= minute < last if first < last else minute >= first or minute < last
    assert passes(Daily(start, end), now_us=at_us) is inside


def test_h06_checks_what_stands_together() -> None:
    check_restrictions((Frequency(1.0), Interval(0, 1), Interval(5, 6), Daily("10:00", "09:00", "Europe/Lisbon")))
    with pytest.raises(Refused, match="one frequency"):
        check_restrictions((Frequency(1.0), Interval(0, 1), Frequency(1.0)))
