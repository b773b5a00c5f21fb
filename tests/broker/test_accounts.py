"""Accounting of every match: generated = delivered + queued + dropped by reason (SPEC G-21, U-02, X20, X40)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from wanderbus import records
from wanderbus.broker.messages import DiskFreed, DiskFull, MessageArrived
from wanderbus.broker.state.rows import SessionRow
from wanderbus.event import Event, Loss
from wanderbus.machine import ClockRead
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Done,
    Leave,
    NotifyGap,
    Publish,
    PublishAccepted,
    PublishRefused,
    Query,
    Renew,
    RequestRefused,
    Restrict,
    Subscribe,
    Unsubscribe,
    encode,
)
from wanderbus.subscription import Frequency, Interval, QueuePolicy


def account(desk: Desk) -> SessionRow:
    row = desk.broker.state.sessions[f"{ALICE}/default"]
    assert row.generated == row.delivered + row.queued + sum(row.dropped.values())
    return row


def publish(desk: Desk, *numbers: int, kind: str = "any") -> None:
    link = desk.attach(BOB, "desk", epoch=len(desk.log))
    for n in numbers:
        desk.publish(link, n, Kind=kind)


def test_g21_a_match_is_delivered_when_every_member_has_taken_it(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    for expression in ("N > 0", "N > 1"):
        desk.subscribed(phone, expression)
    publish(desk, 1, 2)
    desk.take(phone, 2)
    assert (account(desk).generated, account(desk).queued, account(desk).delivered) == (3, 3, 0)
    desk.take(laptop, 1)
    assert (account(desk).queued, account(desk).delivered) == (2, 1)
    desk.take(laptop, 2)
    assert (account(desk).queued, account(desk).delivered, account(desk).queued_bytes) == (0, 3, 0)


def test_e05_x40_notifications_bound_to_a_device_that_left_are_dropped_and_block_nobody(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    desk.subscribed(laptop, "Kind == bound", this_device_only=True)
    desk.subscribed(phone, "N > 0")
    publish(desk, 1, 2, kind="bound")
    desk.send(laptop, Leave(1))
    assert desk.stream(phone) == [1, 2]
    desk.take(phone, 2)
    assert (account(desk).delivered, account(desk).dropped) == (2, {"device_left": 2})
    publish(desk, 3, kind="bound")
    desk.take(phone, 3)
    assert (account(desk).delivered, account(desk).dropped) == (3, {"device_left": 3})


def test_e05_a_drop_before_the_device_left_counts_once(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    desk.subscribed(laptop, "N > 0", this_device_only=True, queue=QueuePolicy(notifications_max=1))
    desk.subscribed(phone, "N > 0")
    publish(desk, 1, 2)
    desk.send(laptop, Leave(1))
    desk.take(phone, 2)
    assert account(desk).dropped == {"subscription.queue.notifications_max": 1, "device_left": 1}
    assert account(desk).delivered == 2


def test_e05_a_gap_is_for_the_device_whose_notification_it_was() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2)))
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    bound = desk.subscribed(phone, "Kind == bound", this_device_only=True)
    free = desk.subscribed(phone, "Kind == all")
    for link in (phone, laptop):
        desk.close(link)
    publish(desk, 1, 2, kind="bound")
    publish(desk, 3, 4, kind="all")
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    assert (desk.stream(phone), desk.stream(laptop)) == ([(1, 1), 2, (3, 3), 4], [(3, 3), 4])
    assert desk.received(phone, NotifyGap)[0].lost == (Loss(bound.id, "queue.notifications_max", 1),)
    assert desk.received(laptop, NotifyGap)[0].lost == (Loss(free.id, "queue.notifications_max", 1),)


def test_e05_each_device_gets_the_gap_of_its_own_loss() -> None:
    """The phone lost its own match of a notification that goes on for all: here a gap and there the event."""
    desk = Desk()
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    bound = desk.subscribed(laptop, "N > 0", this_device_only=True, queue=QueuePolicy(notifications_max=1))
    own = desk.subscribed(phone, "N > 0", this_device_only=True)
    for link in (phone, laptop):
        desk.close(link)
    publish(desk, 1, 2)
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    assert (desk.stream(phone), desk.stream(laptop)) == ([1, 2], [(1, 1), 2])
    assert desk.received(phone, NotifyGap) == []
    assert desk.received(laptop, NotifyGap)[0].lost == (Loss(bound.id, "subscription.queue.notifications_max", 1),)
    for link in (phone, laptop):
        desk.take(link, 2)
    assert account(desk).delivered == 3
    assert desk.waiting(own.id) == 0


@pytest.mark.parametrize("keep_queue", [False, True])
def test_x20_an_agent_that_discards_drops_its_queue_unless_it_keeps_it(desk: Desk, keep_queue: bool) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link)
    publish(desk, 1, 2)
    back = desk.attach(epoch=2, keep=False, keep_queue=keep_queue)
    assert desk.stream(back) == ([1, 2] if keep_queue else [])
    assert account(desk).dropped == ({} if keep_queue else {"discarded": 2})
    assert subscription.id in desk.broker.state.tombstones


def test_x20_an_agent_that_discards_takes_nothing_from_other_devices(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    desk.subscribed(phone, "Kind == bound", this_device_only=True)
    desk.subscribed(laptop, "Kind == bound", this_device_only=True)
    desk.subscribed(phone, "Kind == all")
    publish(desk, 1, kind="bound")
    publish(desk, 2, kind="all")
    desk.attach(epoch=2, keep=False)
    assert account(desk).dropped == {"discarded": 1}
    assert desk.stream(desk.attach(device="laptop")) == [1, 2]
    assert len(desk.broker.state.subscriptions) == 1


def test_u01_the_record_of_an_event_names_who_was_restricted_and_by_what(desk: Desk) -> None:
    link = desk.attach()
    window = Interval(0, 1)
    shut = desk.subscribed(link, "N > 0", restrictions=(Frequency(1.0, "away"), window))
    often = desk.subscribed(link, "N > 1", restrictions=(Frequency(60.0),))
    publish(desk, 1, 2, 3)
    restricted = [record.delivery.restricted for record in desk.written(records.Published)]
    assert restricted == [((shut.id, 1),), ((shut.id, 1),), ((shut.id, 1), (often.id, 0))]
    assert (account(desk).restricted, account(desk).generated) == (4, 1)


def test_design_5_8_the_wall_clock_as_it_was_read_is_recorded_where_it_is_another(desk: Desk) -> None:
    link = desk.attach()
    publish(desk, 1)
    jumped_us = desk.wall_us + 3_600_000_000
    publishing = MessageArrived(link, encode(Publish(1, Event(SUBJECT, {"N": 1}))))
    desk.perform(desk.broker.step([ClockRead(jumped_us), publishing], desk.now + 1.0))
    one, two = desk.written(records.Published)
    assert one.acceptance.received_us is None
    assert two.acceptance.received_us == jumped_us
    assert one.at_us < two.at_us < one.at_us + 2_000_000


# Subscriptions that end and come back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("with_rows", [False, True])
def test_x21_a_subscription_that_ended_comes_back_as_it_was(desk: Desk, with_rows: bool) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link, restrictions=(Frequency(60.0),))
    publish(desk, 1)
    desk.ask(link, Unsubscribe(1, subscription.id))
    row = desk.broker.state.tombstones[subscription.id]
    assert (row.ended_us, row.reason, desk.waiting(subscription.id)) == (desk.wall_us, "asked", 1)
    assert desk.broker.state.sessions[f"{ALICE}/default"].ended == [subscription.id]
    desk.save()
    desk.restart(with_rows=with_rows)
    link = desk.attach()
    assert isinstance(desk.ask(link, Renew(2, subscription.id, None)), Done)
    assert len(desk.broker.state.tombstones) == 0
    publish(desk, 2)
    assert desk.stream(link) == [1], "its minute is not over: when it last generated is remembered"
    desk.take(link, 1)
    row = desk.broker.state.subscriptions[subscription.id]
    assert (desk.waiting(subscription.id), row.ended_us, row.reason) == (0, 0, "")
    assert account(desk).ended == []


def test_g07_the_queue_of_an_ended_subscription_is_delivered_and_counted(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link)
    publish(desk, 1)
    desk.ask(link, Unsubscribe(1, subscription.id))
    desk.take(link, 1)
    assert desk.waiting(subscription.id) == 0
    assert account(desk).delivered == 1


def test_g07_an_ended_subscription_is_removed_once_its_queue_is_empty() -> None:
    desk = Desk(BrokerConfig(tombstone_s=100.0, sweep_s=10.0))
    link = desk.attach()
    subscription = desk.subscribed(link)
    publish(desk, 1)
    desk.ask(link, Unsubscribe(1, subscription.id))
    desk.later(500.0)
    assert desk.written(records.Forgotten) == []
    assert isinstance(desk.ask(link, Renew(2, subscription.id, None)), RequestRefused), (
        "it cannot be renewed for so long"
    )
    desk.take(link, 1)
    desk.later(120.0)
    assert len(desk.broker.state.tombstones) == len(account(desk).ended) == 0
    assert [record.subscriptions for record in desk.written(records.Forgotten)] == [(subscription.id,)]
    assert account(desk).delivered == 1
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_x21_a_tombstone_removed_for_space_drops_its_queue_by_reason() -> None:
    desk = Desk(BrokerConfig(user_subscriptions_max=1))
    link = desk.attach()
    for n in (1, 2):
        desk.ask(link, Unsubscribe(n, desk.subscribed(link, f"N > -{n}").id)) if n == 2 else None
        if n == 1:
            first = desk.subscribed(link, "N > -1")
            publish(desk, 1)
            desk.ask(link, Unsubscribe(1, first.id))
    assert account(desk).dropped == {"forgotten": 1}
    assert len(desk.broker.state.queue) == len(desk.broker.state.events) == 0
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_restarts_do_not_extend_a_queue_with_a_maximum_age() -> None:
    desk = Desk(BrokerConfig(tombstone_s=100.0, sweep_s=10.0))
    link = desk.attach()
    subscription = desk.subscribed(link, queue=QueuePolicy(age_max_s=1_000.0))
    publish(desk, 1)
    desk.ask(link, Unsubscribe(1, subscription.id))
    desk.later(900.0)
    assert subscription.id in desk.broker.state.tombstones
    desk.restart()
    desk.later(320.0)
    assert len(desk.broker.state.tombstones) == 0
    assert account(desk).dropped == {"subscription.queue.age_max_s": 1}


# Publishers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", ["no", "from the log", "from saved rows"])
def test_design_5_6_an_outbox_has_numbers_of_its_own_over_all_lives_of_its_agent(desk: Desk, restart: str) -> None:
    link = desk.attach(epoch=1)
    event = Event(SUBJECT, {"N": 1})
    desk.send(link, Publish(1, event), Publish(1, event, outbox=77), Publish(2, event, outbox=77))
    desk.send(link, Publish(1, event))
    first = desk.received(link, PublishAccepted)
    assert [(m.number, m.outbox) for m in first] == [(1, False), (1, True), (2, True), (1, False)]
    assert first[3] == first[0]
    if restart != "no":
        desk.save()
        desk.restart(with_rows=restart == "from saved rows")
    again = desk.attach(epoch=2)
    desk.send(again, Publish(2, event, outbox=77), Publish(1, event), Publish(3, Event("", {}), outbox=77))
    accepted = desk.received(again, PublishAccepted)
    assert accepted[0] == first[2]
    assert (accepted[1].number, accepted[1].outbox) == (1, False)
    assert [(m.number, m.outbox) for m in desk.received(again, PublishRefused)] == [(3, True)]
    assert len(desk.written(records.Published)) == 4
    desk.send(again, Leave(1))
    assert len(desk.broker.state.publishers) == 0


def test_a_full_disk_refuses_what_is_new_and_nothing_else_until_there_is_room(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link)
    desk.publish(link, 1)
    desk.give(DiskFull())
    again = Publish(1, Event(SUBJECT, {"N": 1}))
    desk.send(link, again, Publish(2, Event(SUBJECT, {"N": 2})))
    (refused,) = desk.received(link, PublishRefused)
    assert (refused.number, refused.limit) == (2, "disk_full")
    assert "nothing was stored" in refused.reason
    assert desk.accepted(link) == [1, 1]
    answer = desk.ask(link, Subscribe(7, SUBJECT, "N == 9", None, (), False))
    assert isinstance(answer, RequestRefused)
    assert (answer.request, answer.limit) == (7, "disk_full")
    written = len(desk.log)
    answer = desk.ask(link, Restrict(9, subscription.id, (Frequency(1.0),)))
    assert isinstance(answer, RequestRefused)
    assert (answer.request, answer.limit, len(desk.log)) == (9, "disk_full", written)
    listed = desk.ask(link, Query(8))
    assert isinstance(listed, Done)
    assert [each.id for each in listed.subscriptions] == [subscription.id]
    desk.take(link, 1)
    assert account(desk).delivered == 1
    desk.give(DiskFreed())
    desk.send(link, Publish(2, Event(SUBJECT, {"N": 2})))
    assert desk.accepted(link) == [1, 1, 2]
    assert isinstance(desk.subscribe(link, "N == 9"), Done)
