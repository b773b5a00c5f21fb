"""The parts of the worlds of weeks: links, clocks, windows, bounds, and the server's own checks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from zoneinfo import ZoneInfo

import pytest

from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.broker.state.broker_clock import BrokerClock
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.weeks.clock import ClockWatch, WallClock
from wanderbus.simulation.weeks.plans import STARTS_S, draw_restrictions
from wanderbus.simulation.weeks.server import WeeksServer
from wanderbus.simulation.weeks.windows import LOTS, are_lots, forbidding, is_open
from wanderbus.simulation.wire import WireDirection
from wanderbus.simulation.world import World
from wanderbus.subscription import Daily, Interval

HOUR_S, DAY_S = 3_600.0, 86_400.0


# Links ----------------------------------------------------------------------------------------------------------------


def test_a_way_keeps_order_and_delivers_together_what_was_sent_together() -> None:
    world, arrived = World(1), list[tuple[float, Sequence[bytes]]]()
    way = WireDirection(world, 0.5, lambda payloads: arrived.append((world.now, payloads)))
    for when, payload in [(0.0, b"a"), (0.2, b"b"), (2.0, b"c")]:
        world.at(when, lambda payload=payload: way.send(payload))  # type: ignore[misc]
    world.run(9.0)
    assert arrived == [(0.5, [b"a", b"b"]), (2.5, [b"c"])]


@pytest.mark.parametrize("seed", range(6))
def test_a_way_that_is_cut_delivers_some_first_part_and_loses_the_rest(seed: int) -> None:
    world, arrived = World(seed), list[bytes]()
    way = WireDirection(world, 0.5, arrived.extend)
    sent = [b"%d" % n for n in range(4)]
    for payload in sent:
        way.send(payload)
    way.cut()
    before = list(arrived)
    way.send(b"later")
    way.cut()
    world.run(9.0)
    assert arrived == before == sent[: len(before)]


def test_cuts_differ_in_what_they_lose() -> None:
    kept = set()
    for seed in range(40):
        arrived: list[bytes] = []
        way = WireDirection(World(seed), 0.5, arrived.extend)
        way.send(b"a")
        way.send(b"b")
        way.cut()
        kept.add(len(arrived))
    assert kept == {0, 1, 2}


# Clocks ---------------------------------------------------------------------------------------------------------------


def test_a_wall_clock_runs_on_from_where_it_was_set() -> None:
    world = World(1)
    clock = WallClock(world, 1_000_000)
    world.at(2.0, lambda: clock.jump(-1.5))
    world.run(9.0)
    assert (clock.read(), clock.jumps) == (1_500_000, 1)


def watched(readings: Sequence[tuple[float, int, int]], last_us: int = 0) -> list[str]:
    """Problems found by a watch with a slew of 0.1, for (second, wall clock, broker's clock) in seconds."""
    watch = ClockWatch(0.1)
    watch.booted(last_us)
    for now, wall_s, shown_s in readings:
        watch.observe(now, wall_s * 1_000_000, shown_s * 1_000_000)
    return watch.problems


def test_the_watch_knows_a_disciplined_clock() -> None:
    assert watched([(0, 100, 100), (10, 110, 110), (20, 3_720, 121), (30, 3_730, 132)]) == []
    assert watched([(0, 100, 100), (10, 10, 109), (20, 20, 118)]) == []
    assert watched([(0, 100, 500)], last_us=500_000_000) == []
    assert watched([(0, 100, 100), (100, 205, 205)]) == []


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ([(0, 100, 100), (10, 90, 90)], "went back"),
        ([(0, 100, 100), (10, 3_700, 3_700)], "off"),
        ([(0, 100, 100), (10, 110, 105)], "off"),
        ([(0, 100, 100), (100, 205, 210)], "off"),
        ([(0, 100, 90)], "off"),
    ],
    ids=["back", "jumps", "lags", "overshoots", "starts elsewhere"],
)
def test_the_watch_sees_what_is_wrong(readings: list[tuple[float, int, int]], words: str) -> None:
    assert words in watched(readings)[0]


@pytest.mark.parametrize("seed", range(5))
def test_watch_and_clock_agree_however_the_wall_clock_is_set(seed: int) -> None:
    draw, watch = Random(seed), ClockWatch(0.05)
    clock, now, wall_us = BrokerClock(0, 0.05), 0.0, 1_700_000_000_000_000
    watch.booted(0)
    for _ in range(300):
        passed_s = draw.choice([0.0, 0.01, 60.0, HOUR_S]) * draw.random()
        now, wall_us = now + passed_s, wall_us + round(passed_s * 1e6)
        if draw.random() < 0.1:
            wall_us += round(draw.uniform(-HOUR_S, HOUR_S) * 1e6)
        watch.observe(now, wall_us, clock.read(wall_us, now))
    assert watch.problems == []


# Restrictions ---------------------------------------------------------------------------------------------------------


def berlin(text: str, fold: int = 0) -> int:
    """Microseconds of the local time of Berlin."""
    shown = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    return int(shown.timestamp()) * 1_000_000


def test_a_window_is_open_while_the_hands_are_between_its_times() -> None:
    window = Daily("16:00", "17:00", "Europe/Berlin")
    assert [is_open(window, berlin(f"2024-06-03T{t}")) for t in ("15:59:59", "16:00:00", "16:59:59", "17:00:00")] == [
        False,
        True,
        True,
        False,
    ]


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    friday = Daily("22:00", "02:00", "Europe/Berlin", weekdays=(5,))
    days = {"2024-06-06T23:00": False, "2024-06-07T23:00": True, "2024-06-08T01:00": True, "2024-06-08T23:00": False}
    assert {text: is_open(friday, berlin(text)) for text in days} == days


def test_an_hour_that_comes_twice_is_open_twice_and_one_left_out_not_at_all() -> None:
    window = Daily("02:15", "02:45", "Europe/Berlin")
    assert [is_open(window, berlin("2024-10-27T02:30", fold)) for fold in (0, 1)] == [True, True]
    minutes = range(berlin("2024-03-31T00:00"), berlin("2024-04-01T00:00"), 60_000_000)
    assert not any(is_open(window, minute) for minute in minutes)


def test_an_interval_ends_before_its_end() -> None:
    assert [is_open(Interval(10, 20), instant) for instant in (9, 10, 19, 20)] == [False, True, True, False]


@pytest.mark.parametrize("start_s", STARTS_S)
def test_the_reference_and_the_broker_forbid_the_same(start_s: int) -> None:
    draw = Random(start_s)
    event = Event("Trade", {"Price": 10})
    for _ in range(400):
        wall_us = (start_s + draw.randrange(14 * 86_400)) * 1_000_000
        at_us = wall_us + round(draw.uniform(-HOUR_S, HOUR_S) * 1e6)
        last_us = draw.choice([None, at_us - round(draw.choice([1.0, HOUR_S, DAY_S]) * draw.random() * 2e6)])
        away = draw.random() < 0.5
        restrictions = draw_restrictions(draw, wall_us)
        found = forbidding(restrictions, event, at_us=at_us, wall_us=wall_us, last_us=last_us, away=away)
        assert found == blocked_by(
            restrictions,
            now_us=at_us,
            received_us=wall_us,
            last_us=last_us,
            away=away,
            event=event,
            kinds=CustomRestrictions({LOTS: Kind(are_lots)}),
        ), (restrictions, at_us, wall_us, last_us, away)


# The server -----------------------------------------------------------------------------------------------------------


def test_the_server_restarts_with_the_time_of_its_last_record() -> None:
    """Rows do not hold the clock; it continues from the log's, even if the wall clock was set back meanwhile."""
    world = World(1)
    clock = WallClock(world, 1_700_000_000_000_000)
    server = WeeksServer(world, clock, BrokerConfig(sweep_s=None))
    server.start()
    world.run(3 * DAY_S)
    assert server.disk.rows_offset > 0
    server.crash(lose_rows=False)
    assert server.storage.recovered().wall_us == server.storage.recovered(from_log_alone=True).wall_us
    clock.jump(-4 * DAY_S)
    server.start()
    world.run(4 * DAY_S)
    assert [*server.problems, *server.watch.problems, *server.check_now(), *server.check_rows()] == []


def test_a_link_that_is_replaced_is_over() -> None:
    world = World(1)
    server = WeeksServer(world, WallClock(world, 1_700_000_000_000_000), BrokerConfig(sweep_s=None))
    assert server.open("sip:a@b", "phone", 0.1, lambda link, payloads: None) is None, "it has not been started"
    server.start()
    wires = [server.open("sip:a@b", "phone", 0.1, lambda link, payloads: None) for _ in range(2)]
    assert [wire.link for wire in wires if wire] == [1, 2]
    server.close(1, "it is over already")
    assert (server.broker.status("sip:a@b"), list(server.check_now())) == ("CONNECTED", [])
    server.close(2, "the agent does not answer")
    assert (server.broker.status("sip:a@b"), list(server.check_now())) == ("DISCONNECTED", [])
