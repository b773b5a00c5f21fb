"""A budget for the work of filters: events beyond it become a gap with a reason, and other users pay nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.desk import ALICE, BOB, Desk, named, rows_of
from tests.broker.engine_desk import EngineDesk
from tests.broker.test_explanation import explained
from wanderbus import filters
from wanderbus.broker.restrictions.restriction_check import RESTRICTION_WORK
from wanderbus.event import Event
from wanderbus.filters.work import Sizes, work_of
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import AgentMessage, NotifyGap, Publish, PublishAccepted, RequestRefused
from wanderbus.records import Dropped, Published
from wanderbus.subscription import Daily

COSTLY = "UPPER(CONCAT(Text, Text)) = 'X' OR TRUE"
LONG = "y" * 10_000
UNITS = work_of(filters.parse(COSTLY, "cesql").root).units(Sizes({"N": 1, "Text": LONG}))


def server(**bounds: Any) -> Desk:
    return Desk(BrokerConfig(**{"sweep_s": None, **bounds}))


def costly(desk: Desk, link: int, number: int = 0) -> str:
    return desk.subscribed(link, f"{COSTLY} OR Text = '{number}'", language="cesql").id


def publish(desk: Desk, link: int, *numbers: int, text: str = LONG) -> None:
    for number in numbers:
        desk.publish(link, number, Text=text)


def test_an_event_beyond_filter_work_max_leaves_a_gap_that_names_it() -> None:
    desk = server(filter_work_max=UNITS // 2)
    link, other = desk.attach(), desk.attach(BOB)
    identity = costly(desk, link)
    publish(desk, other, 1, text="short")
    publish(desk, other, 2)
    publish(desk, other, 3, text="short")
    assert named(desk.out[link]) == [1, (2, 2), 3]
    [gap] = desk.received(link, NotifyGap)
    assert [(loss.subscription, loss.reason, loss.count) for loss in gap.lost] == [(identity, "filter_work_max", 1)]
    assert desk.broker.state.sessions[f"{ALICE}/default"].dropped == {"filter_work_max": 1}
    found = explained(desk, desk.received(other, PublishAccepted)[1].id, identity)
    assert found.outcome == "dropped"
    assert "not evaluated" in found.reason
    assert "because of broker.filter_work_max: the filter takes up to" in found.reason


def test_each_user_has_work_for_an_event_and_others_have_their_own() -> None:
    desk = server(user_event_filter_work_max=3 * UNITS)
    link, other = desk.attach(), desk.attach(BOB)
    mine = [costly(desk, link, number) for number in range(4)]
    theirs = costly(desk, other)
    publish(desk, other, 1)
    [published] = desk.written(Published)
    assert {each for its in published.delivery.notified for each in its.subscriptions} == {*mine, theirs}
    dropped = desk.written(Dropped)
    assert [each.reason for each in dropped] == ["user_event_filter_work_max"]
    assert len(dropped[0].subscriptions) == 2
    assert set(dropped[0].subscriptions) < set(mine)
    publish(desk, other, 2, text="short")
    assert len(desk.written(Dropped)) == 1


def test_work_comes_back_with_time() -> None:
    desk = server(user_filter_work_per_s=2.5 * UNITS)
    link, other = desk.attach(), desk.attach(BOB)
    costly(desk, link)
    publish(desk, other, 1, 2, 3, 4)
    desk.later(1.0)
    publish(desk, other, 5)
    assert [each.reason for each in desk.written(Dropped)] == ["user_filter_work_per_s"] * 2
    assert named(desk.out[link]) == [1, 2, (3, 3), (4, 4), 5]


def test_a_filter_that_is_too_much_for_short_texts_is_refused() -> None:
    desk = server(filter_work_max=5_000)
    link = desk.attach()
    answer = desk.subscribe(link, f"UPPER({', '.join(['CONCAT(a']) + ', a' * 60})) = 'X'", language="cesql")
    assert isinstance(answer, RequestRefused)
    assert answer.limit == "filter_work_max"
    assert "units of work" in answer.reason
    desk.subscribed(link, "UPPER(a) = 'X'", language="cesql")


@pytest.mark.parametrize("restart", [False, True])
def test_a_restart_decides_nothing_again(restart: bool) -> None:
    desk = server(filter_work_max=UNITS // 2)
    link, other = desk.attach(reads=False), desk.attach(BOB)
    costly(desk, link)
    publish(desk, other, 1)
    publish(desk, other, 2, text="short")
    before = rows_of(desk.broker.state)["subscriptions"]
    if restart:
        desk.restart()
    assert rows_of(desk.recovered(from_log_alone=True))["subscriptions"] == before
    assert named(desk.out[desk.attach(epoch=2)]) == [(1, 1), 2]


def test_events_that_come_together_are_decided_as_one_by_one() -> None:
    heard = []
    for together in (True, False):
        desk = server(user_filter_work_per_s=2.5 * UNITS)
        link, other = desk.attach(), desk.attach(BOB)
        costly(desk, link)
        said: list[AgentMessage] = [Publish(n, Event("Trade", {"N": n, "Text": LONG})) for n in range(1, 6)]
        for messages in [said] if together else [[each] for each in said]:
            desk.send(other, *messages)
        heard.append(named(desk.out[link]))
    assert heard[0] == heard[1]
    assert heard[0][:2] == [1, 2]


def test_an_undecided_filter_refuses_no_event() -> None:
    from wanderbus.subscription import QueuePolicy

    desk = server(filter_work_max=UNITS // 2, refuse_when_full=("*",), queue=QueuePolicy(1, None, None, "drop_oldest"))
    link, other = desk.attach(reads=False), desk.attach(BOB)
    costly(desk, link)
    publish(desk, other, 1, text="short")
    publish(desk, other, 2)
    assert len(desk.received(other, PublishAccepted)) == 2


@pytest.mark.parametrize("has_engine", [False, True])
def test_a_notification_that_becomes_a_gap_pushes_out_nothing(*, has_engine: bool) -> None:
    """It counts for no bound, whether its session comes before or behind the others of the event."""
    bounds: dict[str, Any] = {"filter_work_max": UNITS // 2, "queued_bytes_max": 3 * len(LONG), "sweep_s": None}
    desk = EngineDesk(BrokerConfig(**bounds)) if has_engine else Desk(BrokerConfig(**bounds))
    bob = desk.attach(BOB)
    users = [f"sip:user{n}@example.org" for n in range(6)]
    for n, user in enumerate(users):
        link = desk.attach(user, reads=False)
        if n % 2:
            costly(desk, link)
        else:
            desk.subscribed(link)
    publish(desk, bob, 1, text=LONG[:9_000])
    reasons = [dict(desk.broker.state.sessions[f"{user}/default"].dropped) for user in users]
    assert reasons == [{}, {"filter_work_max": 1}] * 3


def test_restrictions_count_as_work_of_the_user_and_beyond_it_become_a_gap() -> None:
    desk = server(user_event_filter_work_max=64 * RESTRICTION_WORK * 3)
    link, other = desk.attach(), desk.attach(BOB)
    nights = tuple(Daily(f"02:{n:02}", f"03:{n:02}", "Europe/Berlin") for n in range(60))
    for n in range(5):
        desk.subscribed(link, f"N != -{n}", restrictions=nights)
    desk.publish(other, 1)
    dropped = desk.written(Dropped)
    assert [each.reason for each in dropped] == ["user_event_filter_work_max"]
    assert len(dropped[0].subscriptions) == 2
    found = explained(desk, desk.received(other, PublishAccepted)[0].id, dropped[0].subscriptions[0])
    assert "because of broker.user_event_filter_work_max: the filter takes up to 50 units" in found.reason
    assert f"its restrictions take {60 * RESTRICTION_WORK}" in found.reason
    assert "not evaluated" not in found.reason
    desk.publish(other, 2)
    assert len(desk.written(Dropped)) == 2
