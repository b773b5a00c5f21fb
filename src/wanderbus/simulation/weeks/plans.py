"""Draws for a world of weeks: a broker's bounds, people's habits, events, subscriptions, restrictions."""

from __future__ import annotations

from datetime import datetime
from random import Random
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.weeks.life import Habits
from wanderbus.simulation.weeks.policy import LATEST
from wanderbus.simulation.weeks.windows import LOTS
from wanderbus.subscription import (
    PATTERN,
    Custom,
    Daily,
    Frequency,
    Interval,
    QueuePolicy,
    Restriction,
    Unit,
    When,
    WhenFull,
)

HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0

STARTS_S: Final = (
    1_709_856_000,  # 8 March 2024: New York, then Berlin go forward
    1_712_275_200,  # 5 April 2024: Lord Howe goes back by half an hour
    1_718_000_000,  # June: clocks stay
    1_729_728_000,  # 24 October 2024: Berlin, then New York go back
    1_759_276_800,  # 1 October 2025: Lord Howe goes forward by half an hour
    1_324_900_000,  # 26 December 2011: Apia leaves out a day
)
"""Begin of worlds, seconds since the Unix epoch: some days before clocks are changed somewhere."""

ZONES: Final = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Pacific/Apia",
)
SUBJECTS: Final = ("Trade", "Trade", "Alarm", "Weather")
STOCKS: Final = ("PETR4", "VALE3", "ITUB4")
EXPRESSIONS: Final = (
    "(Stock == PETR4) and (Price < 25)",
    "Stock == VALE3",
    "(Price >= 40) or (Stock == ITUB4)",
    "not (Price < 10)",
    "",
    "",
)
PATTERNS: Final = (
    "pattern rise by Stock match A: Trade (Price < 25) then not C: Trade (Price > 45) "
    "then B: Trade where (B.Price > A.Price) within 6 hours emit rise with Stock = B.Stock, Price = B.Price",
    "pattern quiet by Stock match A: Alarm (Price >= 20) then not B: Alarm within 3 hours "
    "emit quiet with Stock = A.Stock, Price = A.Price",
    "pattern pairs match A{1,2}: Trade (Stock == VALE3) then B: Weather (Stock == PETR4) within 2 days select every "
    "emit pairs with Stock = B.Stock, Price = B.Price",
    "pattern late by Stock match A: Trade then B: Trade where (B.Price > A.Price) within 12 hours "
    "on event time At lateness 10 minutes skip past last event emit late with Stock = B.Stock, Price = B.Price",
)
LATE_S_MAX: Final = 1_800.0
"""Time by which an event's own time is before that of its publishing, at most: longer than the lateness above."""

_UNITS: Final[dict[Unit, float]] = {
    "milliseconds": 0.001,
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": HOUR_S,
    "days": DAY_S,
    "weeks": 7 * DAY_S,
}
_FREQUENCIES: Final[tuple[tuple[float, Unit], ...]] = (
    (500, "milliseconds"),
    (15, "seconds"),
    (5, "minutes"),
    (2, "hours"),
    (1, "days"),
    (1, "weeks"),
)


def draw_config(draw: Random) -> BrokerConfig:
    """Return a broker's bounds: most are wide, some are reached all the time."""
    when_full: WhenFull = "drop_newest" if draw.random() < 0.3 else "drop_oldest"
    tight = draw.random() < 0.5
    lifetime_max_s = draw.choice([None, None, 7 * DAY_S])
    return BrokerConfig(
        zone=draw.choice(ZONES),
        queue=QueuePolicy(
            notifications_max=draw.choice([1, 3, 8, 20]) if tight else 10_000,
            bytes_max=draw.choice([300, 2_000, 64 * 2**20]) if tight else 64 * 2**20,
            age_max_s=draw.choice([None, None, 20 * 60.0, 2 * DAY_S]),
            when_full=when_full,
        ),
        refuse_when_full=("Alar?",) if draw.random() < 0.3 else (),
        user_queued_bytes_max=2_500 if draw.random() < 0.15 else 256 * 2**20,
        queued_bytes_max=4_000 if draw.random() < 0.15 else 2 * 2**30,
        unacknowledged_max=draw.choice([256, 256, 1, 3]),
        backlog_per_s=draw.choice([None, 20.0]),
        user_subscriptions_max=draw.choice([1_000, 1_000, 4]),
        publishes_remembered=draw.choice([1_024, 3]),
        lifetime_s_default=lifetime_max_s and DAY_S,
        lifetime_s_min=draw.choice([0.0, 60.0]),
        lifetime_s_max=lifetime_max_s,
        sweep_s=draw.choice([None, HOUR_S, 6 * HOUR_S]),
        tombstone_s=draw.choice([60.0, DAY_S, 7 * DAY_S]),
        device_grace_s=draw.choice([DAY_S, 3 * DAY_S, 7 * DAY_S]),
        clock_slew_max=draw.choice([0.1, 0.1, 0.02]),
    )


def draw_spark_subjects(draw: Random, config: BrokerConfig) -> tuple[str, ...]:
    """Return subjects that an engine matches; they may not be those that a full queue refuses."""
    some = [("Trade",), ("Trade", "Weather"), ("W*",)]
    return draw.choice(some if config.refuse_when_full else [*some, ("*",)])


def draw_pattern_work(draw: Random, config: BrokerConfig) -> BrokerConfig:
    """Return bounds on the work of patterns, in half of all worlds so narrow that detections are late or lost."""
    narrow = [{}, {}, {"user_pattern_work_per_s": 200.0}, {"user_pattern_work_per_s": 200.0, "pattern_work_max": 1_400}]
    return msgspec.structs.replace(config, **draw.choice(narrow))


def draw_habits(draw: Random) -> Habits:
    """Return the habits of one device's application."""
    return Habits(
        resumes=draw.random() < 0.5,
        think_s=draw.choice([0.0, 1.0, 600.0, 4 * HOUR_S]),
        delay_s=draw.uniform(0.005, 0.5),
        on_ended=draw.choice(["ignore", "ignore", "renew", "resubmit"]),
        ignores=draw.choice([0.0, 0.0, 0.3]),
    )


def draw_event(draw: Random) -> tuple[str, dict[str, str | int | datetime]]:
    """Return an event's subject and attributes; some are ten times as long as others."""
    note = "x" * draw.choice([0, 0, 20, 400])
    return draw.choice(SUBJECTS), {"Stock": draw.choice(STOCKS), "Price": draw.randint(1, 50), "Note": note}


def draw_subscribe(draw: Random, wall_us: int, *, lasting: bool) -> protocol.Subscribe:
    """Return an application's request to subscribe when its clock shows ``wall_us``; ``lasting`` subscriptions last
    days.
    """
    lifetime_s, expires_us = draw_lifetime(draw, wall_us, lasting=lasting)
    return protocol.Subscribe(
        0,
        draw.choice(SUBJECTS),
        draw.choice(EXPRESSIONS),
        lifetime_s,
        draw_restrictions(draw, wall_us),
        draw.random() < 0.2,
        draw_queue(draw),
        expires_us,
    )


def draw_pattern(draw: Random, request: protocol.Subscribe) -> protocol.Subscribe:
    """Return the request for a pattern in place of a filter."""
    return msgspec.structs.replace(request, subject="", expression=draw.choice(PATTERNS), language=PATTERN)


def draw_lifetime(draw: Random, wall_us: int, *, lasting: bool) -> tuple[float | None, int | None]:
    """Return a lifetime in seconds or an instant, possibly in the past, or neither."""
    lifetime_s = draw.uniform(0.5, 2) * draw.choice(
        [DAY_S, 3 * DAY_S] if lasting else [1.0, 60.0, HOUR_S, DAY_S, 7 * DAY_S]
    )
    chance = draw.random()
    if chance < 0.35:
        return None, None
    return (
        (lifetime_s, None) if chance < 0.75 else (None, wall_us + round(draw.choice([1, 1, 1, -1]) * lifetime_s * 1e6))
    )


def draw_queue(draw: Random) -> QueuePolicy:
    """Return a subscription's own bounds, mostly none."""
    if draw.random() < 0.65:
        return QueuePolicy()
    return QueuePolicy(
        notifications_max=draw.choice([None, 1, 2, 5]),
        bytes_max=draw.choice([None, None, 200, 1_000]),
        age_max_s=draw.choice([None, None, 60.0, DAY_S]),
        when_full=draw.choice([None, "drop_oldest", "drop_newest"]),
        policy=draw.choice([None, None, None, None, LATEST]),
    )


def draw_restrictions(draw: Random, wall_us: int) -> tuple[Restriction, ...]:
    """Return restrictions in any order: a frequency at most, and windows."""
    if draw.random() < 0.4:
        return ()
    drawn: list[Restriction] = []
    if draw.random() < 0.5:
        quantity, unit = draw.choice(_FREQUENCIES)
        frequency = Frequency.every(quantity, unit, _draw_when(draw))
        assert frequency.period_s == quantity * _UNITS[unit]
        drawn.append(frequency)
    if draw.random() < 0.15:
        drawn.append(Custom(LOTS, {"of": draw.choice([2, 5])}, _draw_when(draw)))
    drawn += [_draw_window(draw, wall_us) for _ in range(draw.randint(0, 2))]
    draw.shuffle(drawn)
    return tuple(drawn)


def _draw_window(draw: Random, wall_us: int) -> Interval | Daily:
    if draw.random() < 0.3:
        start_us = wall_us + round(draw.uniform(-2, 5) * DAY_S * 1e6)
        return Interval(start_us, start_us + round(draw.uniform(0.1, 4) * DAY_S * 1e6), _draw_when(draw))
    start = draw.randrange(24 * 4)
    end = (start + draw.choice([2, 12, 36, 60, 90])) % (24 * 4)
    weekdays = tuple(sorted(draw.sample(range(1, 8), draw.randint(1, 6)))) if draw.random() < 0.4 else ()
    zone = draw.choice([None, *ZONES])
    return Daily(_time_of_day(start), _time_of_day(end), zone, _draw_when(draw), weekdays)


def _time_of_day(quarters: int) -> str:
    return f"{quarters // 4:02d}:{quarters % 4 * 15:02d}"


def _draw_when(draw: Random) -> When:
    return "away" if draw.random() < 0.3 else "always"
