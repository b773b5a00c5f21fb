"""Arrivals of one batch are matched together, and only those that will be taken (SPEC K-02)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.desk import SUBJECT, Desk
from tests.broker.engine_desk import EngineDesk
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.broker.messages import Append, Appended, ArrivalsTaken, ArrivalsWanted, EventArrived
from wanderbus.event import Event, EventId
from wanderbus.machine import Output
from wanderbus.records import SERVER_LOG


def arrival(number: int, before: int, *, leader: str = "north", epoch: int = 5) -> EventArrived:
    """An event whose ``N`` is its number."""
    event = Event(SUBJECT, {"N": number})
    return EventArrived(leader, epoch, number, before, EventId("origin", 3, 900 + number), 7, event)


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[list[object]]:
    """The ``N`` of the events of each batch that was matched together."""
    found: list[list[object]] = []
    prematch = Matcher.prematch

    def recorded(matcher: Matcher, events: Sequence[Event]) -> None:
        if events:
            found.append([each["N"] for each in events])
        prematch(matcher, events)

    monkeypatch.setattr(Matcher, "prematch", recorded)
    return found


def test_arrivals_in_order_are_matched_together(matched: list[list[object]]) -> None:
    desk = Desk()
    alice = desk.attach()
    desk.subscribed(alice, "N != 3")
    desk.give(arrival(1, 0), arrival(3, 1), arrival(1, 0, leader="south"), arrival(4, 3))
    assert matched == [[1, 3, 1, 4]]
    assert desk.stream(alice) == [1, 1, 4]


def test_repeats_holes_and_former_epochs_are_not_matched(matched: list[list[object]]) -> None:
    desk = Desk()
    alice = desk.attach()
    desk.subscribed(alice)
    desk.give(arrival(2, 0))
    desk.give(arrival(1, 0), arrival(2, 0), arrival(3, 2), arrival(9, 3, epoch=4), arrival(4, 3), arrival(7, 6))
    assert matched == [[3, 4]]
    assert desk.stream(alice) == [2, 3, 4]


def test_a_subscription_that_expires_in_the_batch_gets_nothing_more(matched: list[list[object]]) -> None:
    desk = Desk()
    alice = desk.attach()
    desk.subscribed(alice, "N > 0", lifetime_s=1.0)
    desk.subscribed(alice, "N > 2")
    desk.now += 2.0
    desk.give(arrival(1, 0), arrival(2, 1), arrival(3, 2))
    assert matched == [[1, 2, 3]]
    assert desk.stream(alice) == [3]


def test_arrivals_that_the_engine_matches_are_not_matched_by_the_broker(matched: list[list[object]]) -> None:
    desk = EngineDesk()
    alice = desk.attach()
    desk.subscribed(alice)
    desk.give(arrival(1, 0), arrival(2, 1))
    assert matched == []
    assert desk.stream(alice) == [1, 2]


def test_a_batch_is_acknowledged_once_for_each_leader_when_all_of_it_is_durable() -> None:
    desk = Desk()
    outputs = desk.step(arrival(1, 0), arrival(1, 0, leader="south"), arrival(3, 1), arrival(6, 5))
    (append,) = [each for each in outputs if isinstance(each, Append)]
    *_, last = [offset for offset, _, _ in append.entries]
    assert _answers(outputs) == []
    assert _answers(desk.step(Appended(SERVER_LOG, last))) == []
    wanted, *taken = _answers(desk.step(Appended(SERVER_LOG, last + 1)))
    assert wanted == ArrivalsWanted("north", 5, 3)
    assert taken == [ArrivalsTaken("north", 5, 3), ArrivalsTaken("south", 5, 1)]


def _answers(outputs: Sequence[Output]) -> list[Output]:
    return [each for each in outputs if isinstance(each, ArrivalsTaken | ArrivalsWanted)]
