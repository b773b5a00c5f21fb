"""Intervals and daily windows, and all restrictions against a slow reference (SPEC H-07 to H-09, X27 to X29)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.desk import START_US
from tests.broker.judging import MINUTE_US, blocked, passes, us
from wanderbus.subscription import Daily, Frequency, Interval, Restriction


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


def test_h09_x29_weekdays_are_the_days_on_which_a_window_begins() -> None:
    friday_night = Daily("22:00", "06:00", weekdays=(5,))
    for instant, inside in {
        "2026-03-12 23:00": False,  # a Thursday
        "2026-03-13 05:59": False,
        "2026-03-13 22:00": True,
        "2026-03-14 05:59": True,
        "2026-03-14 06:00": False,
        "2026-03-14 22:00": False,
        "2026-03-15 05:59": False,
    }.items():
        assert passes(friday_night, now_us=us(instant)) is inside, instant
    assert passes(Daily("22:00", "06:00", weekdays=(7,)), now_us=us("2026-03-16 05:59"))  # a Monday
    working_hours = Daily("09:00", "17:00", weekdays=(1, 2, 3, 4, 5))
    assert [passes(working_hours, now_us=us(f"2026-03-{day:02} 12:00")) for day in range(9, 16)] == [True] * 5 + [
        False
    ] * 2


def open_spans(window: Daily, start: str, end: str) -> list[str]:
    """Spans in which ``window`` is open between two UTC instants, found minute by minute; times are UTC."""
    spans: list[str] = []
    at, was_open = datetime.fromisoformat(start).replace(tzinfo=UTC), False
    until = datetime.fromisoformat(end).replace(tzinfo=UTC)
    while at <= until:
        is_open = at < until and passes(window, now_us=round(at.timestamp()) * 1_000_000)
        if is_open and not was_open:
            spans.append(f"{at:%H:%M}")
        elif was_open and not is_open:
            spans[-1] += f"-{at:%H:%M}"
        at, was_open = at + timedelta(minutes=1), is_open
    return spans


NEW_YORK, BERLIN, LORD_HOWE, APIA = "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"

LEFT_OUT = [
    (NEW_YORK, "2026-03-08 05:00", "2026-03-08 12:00", "02:15", "02:45", []),
    (NEW_YORK, "2026-03-08 05:00", "2026-03-08 12:00", "02:30", "04:00", ["07:00-08:00"]),
    (NEW_YORK, "2026-03-08 05:00", "2026-03-08 12:00", "01:00", "02:30", ["06:00-07:00"]),
    (NEW_YORK, "2026-03-08 05:00", "2026-03-08 12:00", "01:30", "03:30", ["06:30-07:30"]),
    (NEW_YORK, "2026-03-08 05:00", "2026-03-08 12:00", "23:00", "05:00", ["05:00-09:00"]),
    (BERLIN, "2026-03-28 23:00", "2026-03-29 06:00", "02:00", "03:00", []),
    (BERLIN, "2026-03-28 23:00", "2026-03-29 06:00", "02:59", "03:01", ["01:00-01:01"]),
    (BERLIN, "2026-03-28 23:00", "2026-03-29 06:00", "01:30", "02:01", ["00:30-01:00"]),
    (LORD_HOWE, "2026-10-03 14:00", "2026-10-03 18:00", "02:05", "02:25", []),
    (LORD_HOWE, "2026-10-03 14:00", "2026-10-03 18:00", "02:15", "03:00", ["15:30-16:00"]),
    (LORD_HOWE, "2026-10-03 14:00", "2026-10-03 18:00", "01:30", "02:15", ["15:00-15:30"]),
]

TWICE = [
    (NEW_YORK, "2026-11-01 04:00", "2026-11-01 12:00", "01:15", "01:45", ["05:15-05:45", "06:15-06:45"]),
    (NEW_YORK, "2026-11-01 04:00", "2026-11-01 12:00", "00:30", "01:30", ["04:30-05:30", "06:00-06:30"]),
    (NEW_YORK, "2026-11-01 04:00", "2026-11-01 12:00", "01:30", "02:30", ["05:30-06:00", "06:30-07:30"]),
    (NEW_YORK, "2026-11-01 04:00", "2026-11-01 12:00", "00:30", "02:30", ["04:30-07:30"]),
    (BERLIN, "2026-10-24 22:00", "2026-10-25 06:00", "02:00", "03:00", ["00:00-02:00"]),
    (BERLIN, "2026-10-24 22:00", "2026-10-25 06:00", "02:30", "03:30", ["00:30-01:00", "01:30-02:30"]),
    (LORD_HOWE, "2026-04-04 13:00", "2026-04-04 18:00", "01:30", "02:00", ["14:30-15:30"]),
    (LORD_HOWE, "2026-04-04 13:00", "2026-04-04 18:00", "01:45", "02:15", ["14:45-15:00", "15:15-15:45"]),
]


@pytest.mark.parametrize(("zone", "since", "until", "start", "end", "spans"), LEFT_OUT + TWICE)
def test_x27_a_window_is_open_while_a_clock_on_the_wall_shows_a_time_in_it(
    zone: str, since: str, until: str, start: str, end: str, spans: list[str]
) -> None:
    """A clock change forward removes a part of the window; a change back repeats a part."""
    assert open_spans(Daily(start, end, zone), since, until) == spans


def test_x27_a_window_that_wraps_on_the_night_of_a_change_keeps_its_weekday() -> None:
    saturday = Daily("22:00", "06:00", NEW_YORK, weekdays=(6,))
    assert open_spans(saturday, "2026-03-08 00:00", "2026-03-08 23:00") == ["03:00-10:00"]
    assert open_spans(saturday, "2026-10-31 22:00", "2026-11-01 21:00") == ["02:00-11:00"]


def test_x27_x29_a_day_that_was_left_out_had_no_window_but_the_night_after_is_still_its() -> None:
    """Apia went from Thursday 29 December 2011, midnight, to Saturday 31: the calendar's Friday is before it."""
    thursday_to_saturday = ("2011-12-29 10:00", "2011-12-31 10:00")
    assert open_spans(Daily("16:00", "17:00", APIA), *thursday_to_saturday) == ["02:00-03:00", "02:00-03:00"]
    assert open_spans(Daily("16:00", "17:00", APIA, weekdays=(5,)), *thursday_to_saturday) == []
    for weekday, inside in ((4, False), (5, True), (6, False)):
        night = Daily("22:00", "06:00", APIA, weekdays=(weekday,))
        assert passes(night, now_us=us("2011-12-31 05:00", APIA)) is inside
    assert passes(Daily("22:00", "06:00", APIA, weekdays=(4,)), now_us=us("2011-12-29 23:00", APIA))


def test_h04_a_day_of_a_frequency_has_24_hours_whatever_clocks_do() -> None:
    before, after = us("2026-03-07 12:00", NEW_YORK), us("2026-03-08 12:00", NEW_YORK)
    assert after - before == 23 * 60 * MINUTE_US
    assert not passes(Frequency.every(1, "days"), now_us=after, last_us=before)


def begun_on(window: Daily, zone: str, at_us: int) -> int | None:
    """The weekday of the window that is open, found by walking there minute by minute from two days before."""
    open_since: int | None = None
    for minute_us in range(at_us - 2 * 1440 * MINUTE_US, at_us + 1, MINUTE_US):
        shown = datetime.fromtimestamp(minute_us / 1e6, ZoneInfo(zone))
        if f"{shown:%H:%M}" == window.end:
            open_since = None
        if f"{shown:%H:%M}" == window.start:
            open_since = shown.isoweekday()
    return open_since


def blocked_slowly(
    restrictions: Sequence[Restriction], now_us: int, received_us: int, last_us: int | None, *, away: bool
) -> int | None:
    """The result of ``blocked_by``, computed step by step."""
    applying = [(n, each) for n, each in enumerate(restrictions) if each.when == "always" or away]
    forbidding, windows, any_open = [], [], False
    for place, restriction in applying:
        if isinstance(restriction, Frequency):
            if last_us is not None and now_us < last_us + restriction.period_s * 1_000_000:
                forbidding.append(place)
        elif isinstance(restriction, Interval):
            windows.append(place)
            any_open |= received_us in range(restriction.start_us, restriction.end_us)
        elif isinstance(restriction, Daily):
            windows.append(place)
            day = begun_on(restriction, restriction.zone or "UTC", received_us)
            any_open |= day is not None and day in (restriction.weekdays or range(1, 8))
    if windows and not any_open:
        forbidding += windows
    return min(forbidding, default=None)


WHEN = st.sampled_from(["always", "away"])
CLOCKS = st.sampled_from([f"{minute // 60:02}:{minute % 60:02}" for minute in range(0, 1440, 20)])
DAILIES = st.builds(
    Daily,
    CLOCKS,
    CLOCKS,
    st.sampled_from([None, "UTC", "Asia/Kolkata", "America/Sao_Paulo"]),
    WHEN,
    st.lists(st.integers(1, 7), max_size=3).map(tuple),
).filter(lambda window: window.start != window.end)
INTERVALS = st.builds(
    lambda start, length, when: Interval(START_US + start * MINUTE_US, START_US + (start + length) * MINUTE_US, when),
    st.integers(-100, 7 * 1_440),
    st.integers(1, 5_000),
    WHEN,
)
FREQUENCIES = st.builds(Frequency, st.sampled_from([0.5, 60.0, 86_400.0]), WHEN)
MINUTES = st.integers(0, 7 * 1_440).map(lambda minute: START_US - START_US % MINUTE_US + minute * MINUTE_US)


@given(
    restrictions=st.lists(st.one_of(DAILIES, INTERVALS, FREQUENCIES), max_size=5),
    now_us=MINUTES,
    received_us=MINUTES,
    last_us=st.none() | MINUTES,
    away=st.booleans(),
)
def test_h01_to_h09_as_a_walk_through_the_minutes_finds(
    restrictions: list[Restriction], now_us: int, received_us: int, last_us: int | None, away: bool
) -> None:
    fast = blocked(restrictions, now_us, received_us=received_us, last_us=last_us, away=away)
    assert fast == blocked_slowly(restrictions, now_us, received_us, last_us, away=away)
