"""Kinds of restriction that an operator adds (SPEC H-10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.broker.desk import BOB, START_US, SUBJECT, Desk
from wanderbus import records
from wanderbus.broker.core import Broker
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_kinds import Asked, Kind, Parameters
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.errors import Refused
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Publish, RequestRefused, Restrict
from wanderbus.subscription import Custom, Frequency


def check_least(parameters: Parameters) -> None:
    if not isinstance(parameters.get("least"), int):
        raise Refused("'worth' takes a number 'least'")


def worth(parameters: Parameters, asked: Asked) -> bool:
    value = asked.event["N"]
    return isinstance(value, int) and value >= parameters["least"]


def broken(_parameters: Parameters, _asked: Asked) -> bool:
    raise ZeroDivisionError("half of nothing")


WORTH = Kind(worth, check_least)


class KindsDesk(Desk):
    """A desk whose broker has some custom kinds."""

    def __init__(self, kinds: Mapping[str, Kind], config: BrokerConfig | None = None) -> None:
        self.kinds = kinds
        super().__init__(config)

    def start(self) -> None:
        self.broker = Broker(self.recovered(), self.config, CustomRestrictions(self.kinds))
        self.timers.clear()
        self.give(ServerStarted())


def test_h10_a_kind_that_is_registered_restricts() -> None:
    desk = KindsDesk({"worth": WORTH})
    link = desk.attach()
    subscription = desk.subscribed(link, restrictions=(Custom("worth", {"least": 3}),))
    for n in (2, 3, 4):
        desk.publish(link, n)
    assert desk.stream(link) == [3, 4]
    assert [record.delivery.restricted for record in desk.written(records.Published)] == [
        ((subscription.id, 0),),
        (),
        (),
    ]
    changed = desk.ask(link, Restrict(1, subscription.id, (Custom("worth", {"least": 4}),)))
    assert isinstance(changed, Done)
    desk.publish(link, 3)
    desk.publish(link, 5)
    assert desk.stream(link) == [3, 4, 5]


def test_h10_h02_a_kind_may_hold_only_while_away() -> None:
    desk = KindsDesk({"worth": WORTH})
    link = desk.attach()
    desk.subscribed(link, restrictions=(Custom("worth", {"least": 3}, "away"),))
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    desk.close(link)
    desk.publish(bob, 2)
    desk.publish(bob, 3)
    assert desk.stream(desk.attach()) == [1, 3]


def test_h10_a_kind_receives_all_inputs_of_other_restrictions() -> None:
    seen: list[Asked] = []

    def note(_parameters: Parameters, asked: Asked) -> bool:
        seen.append(asked)
        return True

    desk = KindsDesk({"note": Kind(note)})
    link = desk.attach()
    desk.subscribed(link, restrictions=(Custom("note", {}), Frequency(0.5)))
    desk.publish(link, 1)
    desk.later(2.0)
    desk.close(link)
    desk.publish(desk.attach(BOB), 2)
    second_us = START_US + 2_000_000
    assert [(a.now_us, a.received_us, a.last_us, a.away, a.event["N"]) for a in seen] == [
        (START_US, START_US, None, False, 1),
        (second_us, second_us, START_US, True, 2),
    ]


@pytest.mark.parametrize("together", [False, True])
def test_b01_no_restriction_is_asked_about_an_event_that_does_not_match(together: bool) -> None:
    asked: list[object] = []

    def note(_parameters: Parameters, about: Asked) -> bool:
        asked.append((about.event.subject, about.event.get("N")))
        return True

    desk = KindsDesk({"note": Kind(note)})
    link = desk.attach()
    desk.subscribed(link, "N > 1", restrictions=(Custom("note", {}),))
    unmatched: list[dict[str, Any]] = [{"N": 1}, {"N": "2"}, {"M": 2}, {"N": []}, {}]
    events = [Event(SUBJECT, attributes) for attributes in unmatched]
    events += [Event("Other", {"N": 2}), Event(SUBJECT, {"N": 2}), Event(SUBJECT, {"N": 0})]
    messages = [Publish(number, event) for number, event in enumerate(events, 1)]
    for some in [messages] if together else [[message] for message in messages]:
        desk.send(link, *some)
    assert desk.stream(link) == [2]
    assert asked == [(SUBJECT, 2)]


@pytest.mark.parametrize(
    ("kinds", "restriction", "reason"),
    [
        ({}, Custom("moon", {}), "'moon' (this broker has: none"),
        ({"worth": WORTH, "broken": Kind(broken)}, Custom("moon", {}), "has: broken, worth"),
        ({"worth": WORTH}, Custom("worth", {"least": "much"}), "takes a number 'least'"),
        ({"odd": Kind(worth, lambda given: given["x"])}, Custom("odd", {}), "does not accept these parameters"),
    ],
)
def test_h10_a_refusal_names_the_fault(kinds: Mapping[str, Kind], restriction: Custom, reason: str) -> None:
    desk = KindsDesk(kinds)
    link = desk.attach()
    answer = desk.subscribe(link, restrictions=(restriction,))
    assert isinstance(answer, RequestRefused)
    assert reason in answer.reason


def test_h03_a_kind_that_fails_forbids_and_is_counted() -> None:
    kinds = CustomRestrictions({"broken": Kind(broken)})
    asked = Asked(0, 0, None, False, None)  # type: ignore[arg-type]
    for _ in range(3):
        assert not kinds.allows(Custom("broken", {}), asked)
    assert kinds.failures == {"broken": 3}
    assert kinds.last_failure == "restriction 'broken': ZeroDivisionError: half of nothing"


def test_h03_a_kind_that_fails_holds_up_nobody_else() -> None:
    desk = KindsDesk({"broken": Kind(broken)})
    link = desk.attach()
    desk.subscribed(link, "N > 1", restrictions=(Custom("broken", {}),))
    desk.subscribed(link, "N > 2")
    for n in (2, 3):
        desk.publish(link, n)
    assert desk.stream(link) == [3]


def test_h10_a_kind_that_is_registered_no_longer_forbids_until_it_is_again() -> None:
    desk = KindsDesk({"worth": WORTH})
    desk.subscribed(desk.attach(), restrictions=(Custom("worth", {"least": 0}),))
    desk.kinds = {}
    desk.restart()
    desk.publish(desk.attach(epoch=2), 1)
    desk.kinds = {"worth": WORTH}
    desk.restart()
    link = desk.attach(epoch=3)
    desk.publish(link, 2)
    assert desk.stream(link) == [2]
