"""Restriction check before a notification is generated: order, frequency, counting (SPEC H-01 to H-06, H-11, X26)."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.desk import BOB, START_US, Desk
from tests.broker.judging import blocked, passes
from wanderbus import records
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_check import admitted
from wanderbus.broker.restrictions.restriction_kinds import Asked, Kind
from wanderbus.errors import LimitExceeded, Refused
from wanderbus.limits import RESTRICTIONS_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Restrict
from wanderbus.subscription import Custom, Daily, Frequency, Interval, Restriction, Unit


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


def test_h03_h11_a_notification_blocked_by_another_restriction_does_not_count_as_generated(desk: Desk) -> None:
    window = Interval(START_US + 10_000_000, START_US + 100_000_000)
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(15.0), window))
    for second in (5, 10, 24, 25):
        desk.now = float(second)
        desk.publish(link, second)
    assert desk.stream(link) == [10, 25]


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


@pytest.mark.parametrize("unit", get_args(Unit))
def test_h04_every_unit_is_a_period(desk: Desk, unit: Unit) -> None:
    period_s = {
        "milliseconds": 0.005,
        "seconds": 5.0,
        "minutes": 300.0,
        "hours": 18_000.0,
        "days": 432_000.0,
        "weeks": 3_024_000.0,
    }[unit]
    frequency = Frequency.every(5, unit)
    assert frequency.period_s == period_s
    link = desk.attach()
    desk.subscribed(link, restrictions=(frequency,))
    for n, second in enumerate((0.0, period_s - 0.001, period_s)):
        desk.now = second
        desk.publish(link, n)
    assert desk.stream(link) == [0, 2]


def test_h03_the_first_in_order_that_forbids_is_named_by_its_place() -> None:
    frequency, window = Frequency(10.0), Interval(0, 1)
    assert blocked((frequency, window), 5, last_us=4) == 0
    assert blocked((window, frequency), 5, last_us=4) == 0
    assert blocked((frequency, window), 10_000_004, last_us=4) == 1
    assert blocked((Interval(2, 3), window, frequency), 5) == 0
    assert blocked((Interval(5, 6), window, frequency), 5, last_us=4) == 2


def asking(*answers: bool) -> tuple[CustomRestrictions, list[Restriction], list[int]]:
    """Custom kinds with these results, a restriction of each, and a list of the kinds that were called."""
    asked: list[int] = []

    def kind(place: int, answer: bool) -> Kind:
        def allows(_parameters: object, _asked: Asked) -> bool:
            asked.append(place)
            return answer

        return Kind(allows)

    kinds = CustomRestrictions({f"kind {place}": kind(place, answer) for place, answer in enumerate(answers)})
    return kinds, [Custom(f"kind {place}", {}) for place in range(len(answers))], asked


def test_h03_none_is_asked_after_one_that_forbids() -> None:
    kinds, customs, asked = asking(True, False, True)
    assert blocked(customs, 5, kinds=kinds) == 1
    assert asked == [0, 1]
    asked.clear()
    assert blocked([customs[2], customs[0], customs[1]], 5, kinds=kinds) == 2
    assert asked == [2, 0, 1]


def test_h03_h08_a_shut_window_and_a_frequency_stop_the_asking_where_they_stand() -> None:
    kinds, (first, second), asked = asking(True, True)
    assert blocked([first, Interval(0, 1), second], 5, kinds=kinds) == 1
    assert blocked([first, Frequency(1.0), second], 5, last_us=4, kinds=kinds) == 1
    assert asked == [0, 0]
    assert blocked([first, Interval(0, 1), second, Interval(4, 6)], 5, kinds=kinds) is None
    assert asked == [0, 0, 0, 1]


def test_h03_the_record_of_an_event_names_the_index_of_the_restriction(desk: Desk) -> None:
    """An explanation names the restriction that decided (SPEC U-01)."""
    link = desk.attach()
    window = Interval(START_US + 10_000_000, START_US + 20_000_000)
    subscription = desk.subscribed(link, restrictions=(Frequency(30.0), window))
    for second in (0, 10, 11, 45):
        desk.now = float(second)
        desk.publish(link, second)
    written = [record.delivery.restricted for record in desk.written(records.Published)]
    assert written == [((subscription.id, 1),), (), ((subscription.id, 0),), ((subscription.id, 1),)]


def test_windows_look_at_the_wall_clock_as_read_and_frequencies_at_the_clock_of_the_broker() -> None:
    """A clock that was set opens a window at once, but neither stops nor hurries a period (DESIGN 5.8)."""
    hour_us = 3_600_000_000
    assert blocked((Interval(0, 10),), hour_us, received_us=5) is None
    assert blocked((Interval(0, 10),), 5, received_us=hour_us) == 0
    assert blocked((Daily("01:00", "02:00"),), 5, received_us=hour_us) is None
    assert blocked((Frequency(10.0),), 10_000_000, received_us=-hour_us, last_us=0) is None
    assert blocked((Frequency(10.0),), 9_999_999, received_us=hour_us, last_us=0) == 0


def test_h02_a_restriction_that_does_not_apply_is_passed_over() -> None:
    closed = Interval(0, 1, "away")
    assert passes(closed, now_us=5)
    assert not passes(closed, now_us=5, away=True)
    assert not passes(Interval(0, 1), closed, now_us=5)


def test_h02_h08_an_open_window_for_away_does_not_help_who_is_there() -> None:
    assert not passes(Interval(0, 1), Interval(4, 9, "away"), now_us=5, away=False)
    assert passes(Interval(0, 1), Interval(4, 9, "away"), now_us=5, away=True)


def test_no_restriction_forbids_nothing() -> None:
    assert passes(now_us=0)


@given(
    period_s=st.integers(1, 30),
    pauses=st.lists(st.integers(0, 20), min_size=1, max_size=25),
    window=st.tuples(st.integers(0, 100), st.integers(1, 200)),
    restarts=st.sets(st.integers(0, 24)),
    away=st.booleans(),
)
def test_h11_the_period_counts_from_what_was_generated_and_over_restarts(
    period_s: int, pauses: list[int], window: tuple[int, int], restarts: set[int], away: bool
) -> None:
    desk = Desk()
    opens, length = window
    interval = Interval(START_US + opens * 1_000_000, START_US + (opens + length) * 1_000_000)
    link = desk.attach()
    desk.subscribed(link, restrictions=(Frequency(float(period_s)), interval))
    if away:
        desk.close(link)
    expected, last, publisher = [], None, desk.attach(BOB)
    for step, pause in enumerate(pauses):
        desk.now += pause
        if step in restarts:
            desk.restart()
            publisher = desk.attach(BOB, epoch=step + 2)
        desk.publish(publisher, step)
        if opens <= desk.now < opens + length and (last is None or desk.now - last >= period_s):
            expected.append(step)
            last = desk.now
    back = desk.attach(epoch=99)
    desk.later(1.0)  # the waiting notifications arrive at a rate
    assert desk.stream(back) == expected


def test_h06_checks_what_stands_together() -> None:
    together = (Frequency(1.0), Interval(0, 1), Interval(5, 6), Daily("10:00", "09:00", "Europe/Lisbon"))
    assert admitted(together, zone="UTC", kinds=CustomRestrictions()) == together
    with pytest.raises(Refused, match="one frequency"):
        admitted((Frequency(1.0), Interval(0, 1), Frequency(1.0)), zone="UTC", kinds=CustomRestrictions())


def test_x27_a_stored_window_names_its_zone(desk: Desk) -> None:
    desk = Desk(BrokerConfig(zone="America/Sao_Paulo"))
    link = desk.attach()
    subscription = desk.subscribed(link, restrictions=(Daily("16:00", "17:00"), Daily("09:00", "10:00", "UTC")))
    assert subscription.restrictions == (Daily("16:00", "17:00", "America/Sao_Paulo"), Daily("09:00", "10:00", "UTC"))
    changed = desk.ask(link, Restrict(1, subscription.id, (Daily("18:00", "19:00"),)))
    assert isinstance(changed, Done)
    assert changed.subscriptions[0].restrictions == (Daily("18:00", "19:00", "America/Sao_Paulo"),)


def test_there_are_not_too_many_restrictions() -> None:
    admitted((Interval(0, 1),) * RESTRICTIONS_MAX, zone="UTC", kinds=CustomRestrictions())
    with pytest.raises(LimitExceeded, match=str(RESTRICTIONS_MAX)) as caught:
        admitted((Interval(0, 1),) * (RESTRICTIONS_MAX + 1), zone="UTC", kinds=CustomRestrictions())
    assert caught.value.limit == "restrictions_max"
