"""T-06: events of other servers, matched by the engine beside this one after they have arrived (SPEC K-02)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import BOB, rows_of
from tests.broker.engine_desk import EngineDesk
from wanderbus.broker.history.piece import find_position
from wanderbus.broker.messages import (
    ArrivalMatched,
    ArrivalsTaken,
    EventArrived,
    InterestEffective,
    LinkOpened,
    OrderedInterestChanged,
)
from wanderbus.broker.servers.server_users import server_user
from wanderbus.event import Event, EventId
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Notify, RequestRefused, Subscribe
from wanderbus.records import Arrived, Matched, Published
from wanderbus.subscription import EVERY_SUBJECT, QueuePolicy


class EngineAccessDesk(EngineDesk, AccessDesk):
    """A server of a domain whose engine answers when the test lets it."""

    def __init__(self, *spark_subjects: str) -> None:
        super().__init__(BrokerConfig(server="south", domain="example.org", spark_subjects=spark_subjects))
        self.answers = False

    def perform(self, outputs: Sequence[Output]) -> None:
        """Let each subscription count at once."""
        super().perform(outputs)
        for each in outputs:
            if isinstance(each, OrderedInterestChanged):
                self.give(InterestEffective(tuple(each.added)))

    def match_all(self) -> None:
        """Let the engine match everything that is durable."""
        while self.match():
            pass


@pytest.fixture
def desk() -> EngineAccessDesk:
    return EngineAccessDesk()


def reports(desk: AccessDesk) -> list[bool]:
    """Return for each arrival that was reported if a subscription matched it."""
    return [each.is_matched for each in desk.collected if isinstance(each, ArrivalMatched)]


def test_an_arrival_is_acknowledged_before_it_is_matched_and_delivered_after(desk: EngineAccessDesk) -> None:
    alice = desk.attach()
    desk.subscribed(alice, "N > 1", subject=NORTHERN)
    desk.arrives(1)
    desk.arrives(2)
    assert [each.number for each in desk.collected if isinstance(each, ArrivalsTaken)] == [1, 2]
    assert [(each.engine, each.delivery.notified) for each in desk.written(Arrived)] == [("spark", ())] * 2
    assert desk.stream(alice) == []
    desk.match_all()
    (notify,) = desk.received(alice, Notify)
    assert (notify.id, desk.stream(alice)) == (EventId("north", 3, 2), [2])


def test_arrivals_and_own_events_are_delivered_in_the_order_of_the_log(desk: EngineAccessDesk) -> None:
    alice, bob = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(alice, subject=EVERY_SUBJECT)
    desk.arrives(1)
    desk.publish(bob, 100, OWN)
    desk.arrives(2)
    desk.publish(bob, 101, OWN)
    desk.match_all()
    assert desk.stream(alice) == [1, 100, 2, 101]


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_restart_between_arrival_and_match_misses_and_repeats_nothing(
    desk: EngineAccessDesk, *, with_rows: bool
) -> None:
    desk.subscribed(desk.attach(), subject=NORTHERN)
    desk.arrives(1)
    desk.match_all()
    desk.arrives(2)
    desk.arrives(3)
    if with_rows:
        desk.save()
    desk.restart(with_rows=with_rows)
    desk.arrives(3)  # the leader has not seen the acknowledgement
    alice = desk.attach()
    desk.match_all()
    assert desk.stream(alice) == [1, 2, 3]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_an_arrival_is_for_those_that_had_subscribed_when_it_came(desk: EngineAccessDesk) -> None:
    alice = desk.attach()
    desk.arrives(1)
    desk.subscribed(alice, subject=NORTHERN)
    desk.arrives(2)
    desk.match_all()
    assert desk.stream(alice) == [2]


def test_the_session_of_another_server_gets_own_events_and_no_arrivals(desk: EngineAccessDesk) -> None:
    link, bob = 99, desk.attach(BOB, "desk")
    desk.give(LinkOpened(link, server_user("west", "example.org"), "west", is_server=True))
    desk.send(link, Attach(1, "default", None, True))
    desk.send(link, Subscribe(2, EVERY_SUBJECT, "", None, (), this_device_only=False))
    desk.arrives(1)
    desk.publish(bob, 2, OWN)
    desk.match_all()
    (matched,) = (each for record in desk.written(Matched) for each in record.events)
    assert (matched.id, matched.notified[0].user) == (
        desk.written(Published)[0].acceptance.id,
        "sip:west@servers.example.org",
    )


def test_a_leader_learns_whether_an_arrival_was_matched_once_it_was(desk: EngineAccessDesk) -> None:
    alice = desk.attach()
    desk.subscribed(alice, "N == 2", subject=NORTHERN)
    for number in (1, 2, 3):
        desk.arrives(number)
    assert reports(desk) == []
    desk.match_all()
    desk.publish(desk.attach(BOB, "desk"), 5, OWN)
    desk.match_all()
    assert reports(desk) == [False, True, False]
    destination = list(desk.broker._phases.rows())[2]
    assert (destination["examined"], destination["held_back"]) == (3, 2)


def test_an_engine_of_other_subjects_leaves_arrivals_to_the_broker() -> None:
    desk = EngineAccessDesk(OWN)
    alice = desk.attach()
    desk.subscribed(alice, subject=NORTHERN)
    desk.arrives(1)
    assert desk.stream(alice) == [1]
    assert desk.written(Arrived)[0].engine == ""
    assert reports(desk) == [True]


def test_a_full_queue_drops_arrivals_and_never_refuses_them(desk: EngineAccessDesk) -> None:
    desk.subscribed(desk.attach(), subject=NORTHERN, queue=QueuePolicy(notifications_max=2))
    desk.restart()
    for number in range(1, 6):
        desk.arrives(number)
    desk.match_all()
    alice = desk.attach()
    assert desk.stream(alice) == [(1, 3), 4, 5]


def test_a_position_behind_an_arrival_is_that_of_its_record_here(desk: EngineAccessDesk) -> None:
    alice = desk.attach()
    desk.subscribed(alice, subject=NORTHERN)
    desk.arrives(1)
    here = next(offset for offset, payload in enumerate(desk.log) if b"arrived" in payload)
    desk.match_all()
    assert find_position(iter(desk.frames), "sip:alice@example.org", "default", 1) == here + 1


@pytest.mark.parametrize("is_beginning", [False, True])
def test_a_subscription_to_a_parent_gets_what_the_engine_matches_for_a_child(*, is_beginning: bool) -> None:
    desk = EngineAccessDesk("Down")
    if not is_beginning:
        desk.match_all()
    alice = desk.attach()
    desk.subscribed(alice, subject="Up")
    if is_beginning:
        desk.give(EventArrived("north", 5, 1, 0, EventId("north", 3, 1), desk.wall_us, Event("Other", {"N": 0})))
        desk.match_all()
        desk.engine.forget()
    desk.arrives(2 if is_beginning else 1, "Down")
    desk.match_all()
    assert desk.stream(alice) == [2 if is_beginning else 1]


def test_a_pattern_over_a_parent_is_refused_if_the_engine_has_a_child() -> None:
    desk = EngineAccessDesk("Down")
    alice = desk.attach()
    pattern = "pattern pair match A: Up (N == 1) then B: Up (N == 2) within 10 seconds"
    answer = desk.subscribe(alice, pattern, language="pattern", subject="")
    assert isinstance(answer, RequestRefused)
    assert "Spark matches the events of the subject 'Up'" in answer.reason
