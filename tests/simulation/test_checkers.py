"""The checkers complain when they should: each is shown a history in which one thing went wrong (DESIGN rule 3)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from wanderbus import records
from wanderbus.event import EventId, Gap, Notification, Position
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.records import decode_record, encode_record
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.server import SimulatedServer
from wanderbus.simulation.system.checkers import check_all
from wanderbus.simulation.system.traveller import Traveller
from wanderbus.simulation.world import World
from wanderbus.subscription import QueuePolicy


class History:
    """A quiet world in which user1 published ten events, and both users saw their part of them."""

    def __init__(self, *, queue_max: int = 1000) -> None:
        self.world = World(1)
        network = Network(self.world, PathConditions())
        rudp = RudpConfig()
        self.server = SimulatedServer(
            self.world, network, BrokerConfig(queue=QueuePolicy(notifications_max=queue_max)), rudp
        )
        self.server.start()
        self.publisher, self.reader = (
            Traveller(
                f"user{n}",
                n,
                self.world,
                network,
                rudp,
                expressions=[expression],
                resumes=n == 1,
                think_s_max=0.01,
            )
            for n, expression in ((1, "Price == 1"), (2, "Price > 2"))
        )
        for traveller in (self.publisher, self.reader):
            traveller.start()
        self.world.run(3.0)
        for price in range(1, 11):
            self.publisher.publish({"Price": price})
        self.world.run(9.0)

    @property
    def items(self) -> list[Notification | Gap]:
        return self.reader.committed.items[1]

    def check(self) -> list[str]:
        return check_all(self.server, [self.publisher, self.reader])

    def renumber(self, index: int, number: int) -> None:
        """Give an item of the reader another number."""
        item = self.items[index]
        self.items[index] = msgspec.structs.replace(item, position=Position(1, number))

    def replace_in_log(self, change: Callable[[records.Published], records.Published | None]) -> None:
        """Change the last published event in the log, or take it away."""
        log = self.server.disk.log
        for index in reversed(range(len(log))):
            record = decode_record(log[index][2])
            if isinstance(record, records.Published):
                changed = change(record)
                offset, at_us, _ = log[index]
                log[index] = (
                    offset,
                    at_us,
                    encode_record(changed or records.Started(at_us=at_us, server="wb", incarnation=1)),
                )
                return
        raise AssertionError


@pytest.fixture
def history() -> History:
    return History()


def test_a_good_history_has_no_problems(history: History) -> None:
    assert history.check() == []
    assert len(history.items) == 8


def test_a_lost_notification_at_the_end(history: History) -> None:
    history.items.pop()
    assert history.check() == ["user2: 'Price > 2': lost [1000010] (1), unexpected [] (0)"]


def test_a_lost_notification_in_the_middle(history: History) -> None:
    del history.items[3]
    assert history.check() == ["user2: 'Price > 2': lost [1000006] (1), unexpected [] (0)"]


def test_a_lost_notification_that_the_broker_never_numbered(history: History) -> None:
    """Dense numbers alone do not show it: the reference evaluator over the log does."""
    del history.items[3]
    for index in range(3, len(history.items)):
        history.renumber(index, index + 1)
    assert history.check() == ["user2: 'Price > 2': lost [1000006] (1), unexpected [] (0)"]


@pytest.mark.parametrize(
    ("redelivered", "resumes", "wrong"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_a_repeated_notification_unless_marked_for_who_does_not_resume(
    history: History, redelivered: bool, resumes: bool, wrong: bool
) -> None:
    again = history.items[-1]
    assert isinstance(again, Notification)
    history.items.append(msgspec.structs.replace(again, redelivered=redelivered))
    history.reader.resumes = resumes
    assert history.check() == (["user2: 'Price > 2': number 8 came again"] if wrong else [])


def test_two_notifications_in_the_wrong_order(history: History) -> None:
    history.items[2], history.items[3] = history.items[3], history.items[2]
    history.renumber(2, 3)
    history.renumber(3, 4)
    assert history.check() == ["user2: 'Price > 2': notifications came out of order"]


def test_a_notification_that_was_never_asked_for(history: History) -> None:
    item = history.publisher.committed.items[1][0]
    history.items.append(msgspec.structs.replace(item, position=Position(1, 9)))
    assert history.check() == ["user2: 'Price > 2': lost [] (0), unexpected [1000001] (1)"]


def test_an_acknowledged_event_that_is_not_in_the_log(history: History) -> None:
    history.publisher.accepted[1_000_003] = EventId("wb", 1, len(history.server.disk.log))
    assert any("publish 1000003 was acknowledged as wb-" in problem for problem in history.check())


def test_an_acknowledged_event_in_whose_place_is_another(history: History) -> None:
    other = history.publisher.accepted[1_000_004]
    history.publisher.accepted[1_000_003] = other
    assert f"user1: publish 1000003 was acknowledged as {other} but is not there" in history.check()


def test_an_event_that_was_published_twice(history: History) -> None:
    first = next(payload for _, _, payload in history.server.disk.log if b"published" in payload)
    repeated = decode_record(first)
    assert isinstance(repeated, records.Published)

    def with_another_id(record: records.Published) -> records.Published:
        acceptance = msgspec.structs.replace(repeated.acceptance, id=record.acceptance.id)
        return msgspec.structs.replace(repeated, acceptance=acceptance)

    history.replace_in_log(with_another_id)
    assert "event 1000001 was published twice" in history.check()
    assert "user1: its events are in the log out of order" in history.check()


def test_travellers_that_are_still_disconnected(history: History) -> None:
    history.reader.kill()
    assert history.check()[:1] == ["user2: is still DISCONNECTED"]


def test_travellers_without_an_answer(history: History) -> None:
    history.publisher.publish({"Price": 5})
    assert history.check() == ["user1: has requests that were never answered"]


def test_problems_that_a_traveller_noticed(history: History) -> None:
    history.reader.problems.append("publish 7 was refused")
    assert history.check() == ["user2: publish 7 was refused"]


def test_a_live_state_that_is_not_what_the_log_gives(history: History) -> None:
    next(iter(history.server.state.devices.values())).epoch += 1
    problems = history.check()
    assert any(problem.startswith("the log alone and the live state differ in devices") for problem in problems)


def test_a_state_file_that_does_not_fit_the_log(history: History) -> None:
    disk = history.server.disk
    key = next(iter(disk.rows["sessions"]))
    del disk.rows["sessions"][key]
    disk.rows_offset = len(disk.log)
    problems = history.check()
    assert any(
        problem.startswith("the rows with the log and the live state differ in sessions") for problem in problems
    )


def test_a_user_who_is_connected_and_away_at_once(history: History) -> None:
    next(iter(history.server.state.devices.values())).away_since_us = 5
    assert any(problem.endswith("is CONNECTED and away at once") for problem in history.check())


def test_u02_gaps_that_add_up_are_no_problem_and_others_are(history: History) -> None:
    """Two of eight dropped and reported."""
    history.items[2:4] = [Gap(2, "queue_max", Position(1, 4))]
    assert history.check() == []
    history.items[2] = Gap(1, "queue_max", Position(1, 4))
    assert history.check()
    history.items[2] = Gap(2, "queue_max", Position(1, 4))
    history.items.pop()
    assert history.check() == ["user2: 'Price > 2': 5 seen and 2 dropped do not make 8 in order"]


def test_u02_notifications_around_a_gap_must_be_in_order(history: History) -> None:
    history.items[2:4] = [Gap(2, "queue_max", Position(1, 4))]
    history.items[4], history.items[5] = history.items[5], history.items[4]
    history.renumber(4, 6)
    history.renumber(5, 7)
    assert history.check() == ["user2: 'Price > 2': 6 seen and 2 dropped do not make 8 in order"]
