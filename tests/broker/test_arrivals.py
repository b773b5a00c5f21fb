"""Events of other servers: each once and in order, whatever is sent again, lost or crashes (SPEC K-02)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, named, rows_of
from wanderbus import records
from wanderbus.broker.messages import (
    ArrivalsTaken,
    ArrivalsWanted,
    DiskFreed,
    DiskFull,
    EventArrived,
    LeaderEventsLost,
    LinkOpened,
)
from wanderbus.broker.rollback.messages import ArrivalsRewound, InterestLost
from wanderbus.broker.servers.foreign_messages import DomainEventsLost
from wanderbus.broker.servers.server_users import server_user
from wanderbus.event import Event, EventId
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Notify, NotifyGap, Subscribe
from wanderbus.records import Arrived
from wanderbus.subscription import QueuePolicy, Since

PATTERN = "pattern pair match A: Trade (N == 1) then B: Trade (N == 2) within 10 seconds"


class Branch(Desk):
    """A desk that is sent events of the servers ``north`` and ``south``, and collects its answers to them."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.answers: list[ArrivalsTaken | ArrivalsWanted] = []
        super().__init__(config)

    def perform(self, outputs: Sequence[Output]) -> None:
        self.answers += [each for each in outputs if isinstance(each, ArrivalsTaken | ArrivalsWanted)]
        super().perform(outputs)

    def arrives(self, number: int, before: int | None = None, *, leader: str = "north", epoch: int = 5) -> None:
        """Give an event whose ``N`` is its number; nothing was sent between it and ``before``."""
        before = number - 1 if before is None else before
        identity = EventId("origin", 3, 900 + number)
        event = Event(SUBJECT, {"N": number})
        self.give(EventArrived(leader, epoch, number, before, identity, self.wall_us - 7, event))

    def loses(self, number: int, before: int, count: int = 3, *, leader: str = "north", epoch: int = 5) -> None:
        """Report the loss of the events between ``before`` and ``number``, and of that."""
        self.give(LeaderEventsLost(leader, epoch, before, number, count, "log_keep"))

    def take_answers(self) -> list[ArrivalsTaken | ArrivalsWanted]:
        """Return the answers since the last call."""
        answers, self.answers = self.answers, []
        return answers


@pytest.fixture
def branch() -> Branch:
    return Branch()


def numbers(branch: Branch) -> list[int]:
    """The number of each arrival in the log."""
    return [record.arrival.number for record in branch.written(Arrived)]


def test_one_record_has_the_event_its_notifications_and_the_position(branch: Branch) -> None:
    alice = branch.attach()
    branch.subscribed(alice)
    branch.arrives(4, 0)
    branch.arrives(5)
    record = branch.written(Arrived)[-1]
    arrival = record.arrival
    assert (arrival.leader, arrival.epoch, arrival.number, arrival.before) == ("north", 5, 5, 4)
    assert arrival.id == EventId("origin", 3, 905)
    assert arrival.accepted_us == branch.wall_us - 7
    assert record.event["N"] == 5
    assert [each.number for each in record.delivery.notified] == [2]
    assert branch.broker.state.leaders["north"].number == 5


def test_n01_the_destination_counts_what_it_examines_and_what_it_holds_back(branch: Branch) -> None:
    branch.subscribed(branch.attach(), "N > 1")
    for number in (1, 2, 3):
        branch.arrives(number)
    counted = {row["phase"]: (row["examined"], row["held_back"]) for row in branch.broker._phases.rows()}
    assert counted == {"publisher": (0, 0), "channel": (0, 0), "destination": (3, 1)}


def test_a_notification_has_the_id_of_the_events_origin(branch: Branch) -> None:
    alice = branch.attach()
    branch.subscribed(alice, "N > 1")
    branch.arrives(1)
    branch.arrives(2)
    (notify,) = branch.received(alice, Notify)
    assert notify.id == EventId("origin", 3, 902)


def test_an_acknowledgement_waits_for_the_disk(branch: Branch) -> None:
    branch.held = True
    branch.arrives(1)
    branch.arrives(2)
    assert branch.take_answers() == []
    branch.sync()
    assert branch.take_answers() == [ArrivalsTaken("north", 5, 1), ArrivalsTaken("north", 5, 2)]


def test_a_repeat_is_acknowledged_and_not_delivered_again_also_after_a_restart(branch: Branch) -> None:
    branch.arrives(1)
    branch.arrives(2)
    branch.take_answers()
    branch.save()
    branch.restart(with_rows=True)
    branch.arrives(1)
    branch.restart()
    branch.arrives(2, 0)
    assert numbers(branch) == [1, 2]
    assert branch.take_answers() == [ArrivalsTaken("north", 5, 2)] * 2


def test_numbers_without_an_event_are_no_hole(branch: Branch) -> None:
    branch.arrives(3, 0)
    branch.arrives(9, 3)
    assert numbers(branch) == [3, 9]


def test_a_hole_is_asked_for_once_and_nothing_behind_it_is_taken(branch: Branch) -> None:
    branch.arrives(1)
    branch.arrives(3)
    branch.arrives(4)
    assert numbers(branch) == [1]
    assert branch.take_answers() == [ArrivalsTaken("north", 5, 1), ArrivalsWanted("north", 5, 1)]
    for number in (2, 3, 4):
        branch.arrives(number)
    assert numbers(branch) == [1, 2, 3, 4]
    branch.take_answers()
    branch.arrives(6)
    assert branch.take_answers() == [ArrivalsWanted("north", 5, 4)]


def test_each_leader_has_its_own_numbers(branch: Branch) -> None:
    branch.arrives(1)
    branch.arrives(1, leader="south")
    branch.arrives(2, leader="south")
    branch.arrives(2)
    assert [record.arrival.leader for record in branch.written(Arrived)] == ["north", "south", "south", "north"]


def test_numbers_go_on_in_the_next_epoch_of_a_leader(branch: Branch) -> None:
    branch.arrives(8, 0)
    branch.arrives(8, 0, epoch=6)
    branch.arrives(9, epoch=6)
    assert numbers(branch) == [8, 9]


@pytest.mark.parametrize("saved", [False, True])
def test_a_new_stream_of_a_leader_begins_again_with_a_gap_and_the_old_one_is_refused(
    branch: Branch, *, saved: bool
) -> None:
    branch.arrives(8, 0)
    branch.give(ArrivalsRewound("north", 6, 0, is_own=False))
    if saved:
        branch.save()
    branch.restart(with_rows=saved)
    branch.arrives(1, epoch=6)
    branch.take_answers()
    branch.arrives(9, epoch=5)
    assert numbers(branch) == [8, 1]
    assert branch.take_answers() == []
    (lost,) = branch.written(records.ArrivalsLost)
    assert (lost.leader, lost.epoch, lost.number, lost.reason) == ("north", 6, 0, "server_restored")


def test_a_server_that_has_lost_what_it_acknowledged_gives_all_its_subscriptions_a_gap(branch: Branch) -> None:
    branch.arrives(3, 0)
    for leader in ("north", "south"):
        branch.give(ArrivalsRewound(leader, 5, 8, is_own=True))
    branch.arrives(9, 0)
    assert numbers(branch) == [3, 9]
    assert len(branch.written(records.RolledBack)) == 1, "the second leader knows of the same rollback"


def test_nothing_is_taken_while_the_disk_is_full_and_it_is_asked_for_afterwards(branch: Branch) -> None:
    branch.arrives(1)
    branch.take_answers()
    branch.give(DiskFull())
    branch.arrives(2)
    assert branch.take_answers() == []
    branch.give(DiskFreed())
    assert branch.take_answers() == [ArrivalsWanted("north", 5, 1)]
    branch.arrives(2)
    assert numbers(branch) == [1, 2]


def test_events_that_a_leader_did_not_send_are_a_gap_that_moves_nothing(branch: Branch) -> None:
    branch.arrives(3, 0)
    branch.give(DiskFull())
    branch.give(InterestLost("north"))
    assert branch.written(records.ArrivalsLost) == []
    branch.give(DiskFreed())
    branch.arrives(4)
    assert numbers(branch) == [3, 4]
    (lost,) = branch.written(records.ArrivalsLost)
    assert (lost.leader, lost.number, lost.reason) == ("north", 3, "server_restored")


def test_a_hole_that_has_closed_is_asked_for_no_more(branch: Branch) -> None:
    branch.arrives(2)
    branch.arrives(1)
    branch.take_answers()
    branch.give(DiskFull())
    branch.give(DiskFreed())
    assert branch.take_answers() == []


def test_bounds_of_queues_drop_and_never_refuse_an_arrival() -> None:
    branch = Branch(BrokerConfig(queue=QueuePolicy(notifications_max=2), refuse_when_full=("*",)))
    alice = branch.attach()
    branch.subscribed(alice)
    branch.close(alice)
    for number in range(1, 6):
        branch.arrives(number)
    assert numbers(branch) == [1, 2, 3, 4, 5]
    session = branch.broker.state.sessions[f"{branch.written(Arrived)[0].delivery.notified[0].user}/default"]
    assert (session.waiting, session.dropped) == (2, {"queue.notifications_max": 3})


def test_a_subscription_since_a_point_in_the_past_reads_arrivals_too(branch: Branch) -> None:
    bob = branch.attach(BOB)
    branch.arrives(1)
    branch.publish(bob, 2)
    branch.reads_history = False
    alice = branch.attach()
    branch.subscribe(alice, since=Since(), subject=SUBJECT)
    branch.arrives(3, 1)
    branch.publish(bob, 4)
    branch.read_history()
    assert named(branch.received(alice, Notify)) == [1, 2, 3, 4]


def test_a_pattern_takes_arrivals_and_events_of_this_server_in_the_order_of_the_log(branch: Branch) -> None:
    alice, bob = branch.attach(), branch.attach(BOB)
    branch.subscribed(alice, PATTERN, subject="pair", language="pattern")
    branch.publish(bob, 1)
    branch.later(0.5)
    branch.arrives(2, 0)
    branch.later(2.0)
    branch.arrives(3)
    assert len(branch.received(alice, Notify)) == 1


def test_a_loss_is_a_gap_for_each_subscription_and_advances_the_position(branch: Branch) -> None:
    alice, bob = branch.attach(), branch.attach(BOB)
    one, two = branch.subscribed(alice), branch.subscribed(alice, "N > 5")
    third = branch.subscribed(bob)
    branch.arrives(1)
    branch.take_answers()
    branch.loses(9, 1)
    assert branch.take_answers() == [ArrivalsTaken("north", 5, 9)]
    lost = [(loss.subscription, loss.reason) for gap in branch.received(alice, NotifyGap) for loss in gap.lost]
    assert sorted(lost) == [(one.id, "log_keep"), (two.id, "log_keep")]
    assert [loss.subscription for gap in branch.received(bob, NotifyGap) for loss in gap.lost] == [third.id]
    branch.arrives(10, 9)
    assert branch.stream(bob) == [1, (2, 2), 10]
    assert branch.broker.state.leaders["north"].number == 10


def test_a_loss_survives_a_restart_and_a_device_that_is_away_gets_the_gap_later(branch: Branch) -> None:
    alice = branch.attach()
    branch.subscribed(alice)
    branch.close(alice)
    branch.arrives(1)
    branch.loses(9, 1)
    for with_rows in (False, True):
        branch.save()
        branch.restart(with_rows=with_rows)
        assert branch.broker.state.leaders["north"].number == 9
        assert rows_of(branch.recovered(from_log_alone=True)) == rows_of(branch.broker.state)
        alice = branch.attach()
        assert branch.stream(alice) == [1, (2, 2)]
        branch.out.clear()
        branch.close(alice)


def test_a_repeated_loss_is_acknowledged_and_makes_no_second_gap(branch: Branch) -> None:
    alice = branch.attach()
    branch.subscribed(alice)
    branch.loses(9, 0)
    branch.loses(9, 0)
    branch.loses(4, 0)
    branch.loses(9, 0, epoch=4)
    assert branch.stream(alice) == [(1, 1)]
    assert branch.take_answers() == [ArrivalsTaken("north", 5, 9)] * 3


def test_an_acknowledgement_of_a_loss_waits_for_the_disk(branch: Branch) -> None:
    branch.held = True
    branch.loses(9, 0)
    assert branch.take_answers() == []
    branch.sync()
    assert branch.take_answers() == [ArrivalsTaken("north", 5, 9)]


def test_a_loss_behind_a_hole_or_with_a_full_disk_is_not_taken(branch: Branch) -> None:
    branch.loses(9, 3)
    assert branch.take_answers() == [ArrivalsWanted("north", 5, 0)]
    branch.give(DiskFull())
    branch.loses(9, 0)
    assert branch.take_answers() == []
    branch.give(DiskFreed())
    assert branch.take_answers() == [ArrivalsWanted("north", 5, 0)]
    branch.loses(9, 0)
    assert branch.take_answers() == [ArrivalsTaken("north", 5, 9)]


def test_a_loss_concerns_the_users_subscriptions_to_channels_of_that_leader() -> None:
    desk = AccessDesk()
    desk.give(LinkOpened(50, server_user("east", "example.org"), "server", is_server=True))
    desk.send(50, Attach(1, "default", None, keep=True), Subscribe(1, "*", "", None, (), False))
    alice = desk.attach()
    for number, subject in enumerate((NORTHERN, OWN, "*", "Down"), 1):
        desk.send(alice, Subscribe(number, subject, "", None, (), False))
    (session,) = desk.broker.state.sessions_of(ALICE)
    desk.read(alice, *session.subscriptions)
    desk.give(LeaderEventsLost("north", 5, 0, 9, 3, "log_keep"))
    lost = [loss.subscription for gap in desk.received(alice, NotifyGap) for loss in gap.lost]
    rows = desk.broker.state.subscriptions
    assert sorted(rows[each].subscription.subject for each in lost) == ["*", "Down", NORTHERN]
    assert not desk.broker.state.sessions_of(server_user("east", "example.org"))[0].dropped


def gaps(desk: AccessDesk, link: int) -> list[tuple[str, str]]:
    """Subject and reason of each loss that a device reads about."""
    rows = desk.broker.state.subscriptions
    return sorted(
        (rows[loss.subscription].subscription.subject, loss.reason)
        for gap in desk.received(link, NotifyGap)
        for loss in gap.lost
    )


@pytest.mark.parametrize("is_full", [False, True])
def test_m01_a_loss_of_a_foreign_domain_is_a_gap_for_subscriptions_to_its_subjects(is_full: bool) -> None:
    desk = AccessDesk()
    desk.give(LinkOpened(50, server_user("east", "example.org"), "server", is_server=True))
    desk.send(50, Attach(1, "default", None, keep=True), Subscribe(1, "*", "", None, (), False))
    alice = desk.attach()
    for number, subject in enumerate((NORTHERN, OWN, "*", "Down"), 1):
        desk.send(alice, Subscribe(number, subject, "", None, (), False))
    (session,) = desk.broker.state.sessions_of(ALICE)
    desk.read(alice, *session.subscriptions)
    if is_full:
        desk.give(DiskFull())
    desk.give(DomainEventsLost("beta", frozenset({OWN, "*", "Other"})))
    if is_full:
        assert gaps(desk, alice) == []
        desk.give(DiskFreed())
    assert gaps(desk, alice) == [("*", "domain_events_lost"), (OWN, "domain_events_lost")]
    assert not desk.broker.state.sessions_of(server_user("east", "example.org"))[0].dropped
    desk.give(DomainEventsLost("beta", frozenset({"Other"})))
    assert len(desk.written(records.EventsLost)) == 1


def test_m01_a_loss_of_a_foreign_domain_concerns_its_subjects_alone_where_channels_have_moved() -> None:
    desk = AccessDesk()
    alice = desk.attach()
    server = desk.broker.state.servers[desk.broker.state.server]
    server.has_moved = True
    desk.subscribed(alice, subject=OWN)
    desk.give(DomainEventsLost("beta", frozenset({"Other"})))
    assert gaps(desk, alice) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 4)),
            st.tuples(st.just("lose"), st.just(0)),
            st.tuples(st.just("repeat"), st.integers(0, 3)),
            st.tuples(st.just("crash"), st.integers(0, 4)),
            st.tuples(st.just("sync"), st.just(0)),
            st.tuples(st.just("save"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_everything_arrives_once_and_in_order_whatever_is_lost_or_repeated(steps: list[tuple[str, int]]) -> None:
    branch = Branch()
    alice = branch.attach()
    branch.subscribed(alice)
    branch.held, synced = True, len(branch.log)
    stream = [0]
    place = acknowledged = 0
    for what, n in steps:
        if what == "send":
            if place == len(stream) - 1:
                stream.append(stream[-1] + n)
            place += 1
            branch.arrives(stream[place], stream[place - 1])
        elif what == "lose" and place < len(stream) - 1:
            place += 1
        elif what == "lose":
            stream.append(stream[-1] + 1)
            place += 1
        elif what == "repeat":
            place = max(0, min(place - n, stream.index(acknowledged)))
        elif what == "sync":
            synced = len(branch.log)
            branch.sync()
        elif what == "save" and synced == len(branch.log):
            branch.save()
        elif what == "crash":
            del branch.log[max(synced, len(branch.log) - n) :]
            branch.answers.clear()
            branch.restart(with_rows=branch.rows_offset <= len(branch.log))
            place, synced = stream.index(acknowledged), len(branch.log)
        for each in branch.take_answers():
            if isinstance(each, ArrivalsTaken):
                assert each.number >= acknowledged
                acknowledged = each.number
            else:
                place = stream.index(each.number)
        in_log = numbers(branch)
        assert in_log == stream[1 : 1 + len(in_log)]
        assert acknowledged <= (in_log or [0])[-1]
    branch.held = False
    branch.sync()
    for place in range(stream.index(acknowledged) + 1, len(stream)):
        branch.arrives(stream[place], stream[place - 1])
    assert numbers(branch) == stream[1:]
    assert rows_of(branch.recovered(from_log_alone=True)) == rows_of(branch.broker.state)


def test_u02_an_arrival_displaces_as_an_event_of_this_server_does() -> None:
    branch = Branch(BrokerConfig(queue=QueuePolicy(notifications_max=2)))
    for expressions in (("N > 0", "N > -1"), ("",)):
        link = branch.attach(ALICE if len(expressions) > 1 else BOB)
        for expression in expressions:
            branch.subscribed(link, expression)
        branch.close(link)
    for number in range(1, 7):
        branch.arrives(number)
    delivery = branch.written(Arrived)[-1].delivery
    assert (delivery.displaced, delivery.dropped) == ({"queue.notifications_max": (4, 4)}, ())
    assert [row.dropped for row in branch.broker.state.sessions_of(ALICE)] == [{"queue.notifications_max": 8}]
    assert rows_of(branch.recovered(from_log_alone=True)) == rows_of(branch.broker.state)
    assert branch.stream(branch.attach()) == [(1, 4), (1, 4), 5, 6]
