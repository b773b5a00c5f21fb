"""Publishing: once for each subscriber, or refused with a reason (SPEC A-01, A-03, A-13, J-04, DESIGN 5.2)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, START_US, SUBJECT, Desk
from wanderbus import records
from wanderbus.event import Event, EventId
from wanderbus.limits import EVENT_ATTRIBUTES_MAX, EVENT_BYTES_MAX, EVENT_LIST_ITEMS_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Notify, Publish, PublishAccepted, PublishRefused, decode_event, size_of
from wanderbus.subscription import QueuePolicy


def test_a01_an_agent_receives_its_own_event(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, "(Stock == PETR4) and (Price < 25)")
    desk.publish(link, 1, Stock="PETR4", Price=24)
    desk.publish(link, 2, Stock="PETR4", Price=25)
    assert desk.stream(link) == [1]


def test_a03_the_same_attributes_under_another_subject_are_not_notified(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, "N == 1", subject="Trade")
    desk.publish(link, 1, subject="Weather")
    desk.publish(link, 1, subject="Trade")
    assert desk.stream(link) == [1]


def test_a12_a13_the_event_arrives_as_it_was_published(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link)
    event = Event(SUBJECT, {"N": 1, "Price": 23.5, "Open": True, "Tags": ["a", "b"]}, 123_456, None)
    desk.send(link, Publish(1, event))
    (notify,) = desk.received(link, Notify)
    assert decode_event(bytes(notify.event)) == event


def test_j04_a_notification_names_the_subscriptions_that_it_matched_and_comes_once(desk: Desk) -> None:
    link = desk.attach()
    first, second = desk.subscribed(link, "N > 0"), desk.subscribed(link, "N > 5")
    third = desk.subscribed(link, "N < 100")
    desk.publish(link, 3)
    desk.publish(link, 7)
    assert [notify.subscriptions for notify in desk.received(link, Notify)] == [
        (first.id, third.id),
        (first.id, second.id, third.id),
    ]
    assert [notify.number for notify in desk.received(link, Notify)] == [1, 2]


def test_an_event_goes_to_every_session_that_matches(desk: Desk) -> None:
    alice, bob, other = desk.attach(), desk.attach(BOB), desk.attach(device="desk", session="work")
    for link in (alice, bob, other):
        desk.subscribed(link)
    desk.publish(bob, 1)
    assert [desk.stream(link) for link in (alice, bob, other)] == [[1], [1], [1]]


def test_design_5_2_the_event_id_is_origin_incarnation_and_log_offset(desk: Desk) -> None:
    link = desk.attach()
    desk.publish(link, 1)
    (accepted,) = desk.received(link, PublishAccepted)
    assert accepted.id == EventId("wb", START_US, len(desk.log) - 1)


@pytest.mark.parametrize("saved", [False, True])
def test_a_restart_and_a_deleted_log_give_ids_with_another_incarnation(desk: Desk, saved: bool) -> None:
    def publish() -> EventId:
        link = desk.attach(epoch=desk.broker.state.offset + 1)
        desk.publish(link, 1)
        return desk.received(link, PublishAccepted)[-1].id

    first = publish()
    desk.later(60.0)
    desk.save()
    desk.restart(with_rows=saved)
    second = publish()
    assert (second.incarnation > first.incarnation, second.number > first.number) == (True, True)
    desk.later(0.001)
    desk.log.clear()
    desk.restart()
    assert publish().incarnation > second.incarnation


@pytest.mark.parametrize("restart", ["no", "from the log", "from saved rows"])
def test_design_5_2_a_repeated_publish_is_answered_as_at_first_and_published_once(desk: Desk, restart: str) -> None:
    link = desk.attach(epoch=5)
    desk.subscribed(link)
    for n in (1, 2):
        desk.publish(link, n)
    first = desk.received(link, PublishAccepted)
    if restart != "no":
        desk.save()
        desk.restart(with_rows=restart == "from saved rows")
    again = desk.attach(epoch=5, resume=2)
    for n in (1, 2, 3):
        desk.publish(again, n)
    assert desk.received(again, PublishAccepted)[:2] == first
    assert desk.accepted(again) == [1, 2, 3]
    assert [record.event["N"] for record in desk.written(records.Published)] == [1, 2, 3]
    assert desk.stream(again) == [3]


def test_design_5_2_a_new_epoch_restarts_numbers(desk: Desk) -> None:
    first = desk.attach(epoch=5)
    desk.publish(first, 1)
    second = desk.attach(epoch=6)
    desk.publish(second, 2)
    assert [record.event["N"] for record in desk.written(records.Published)] == [1, 2]
    assert desk.accepted(second) == [1]


def test_publishers_are_distinguished_by_user_and_device(desk: Desk) -> None:
    for user, device in [(ALICE, "phone"), (ALICE, "desk"), (BOB, "phone")]:
        link = desk.attach(user, device, epoch=1)
        desk.publish(link, 1)
        assert desk.accepted(link) == [1]
    assert len(desk.written(records.Published)) == 3


def test_a_repeat_of_long_ago_is_refused_and_not_published_again() -> None:
    desk = Desk(BrokerConfig(publishes_remembered=2))
    link = desk.attach()
    for n in (1, 2, 3):
        desk.publish(link, n)
    again = desk.attach()
    for n in (1, 2, 3):
        desk.publish(again, n)
    assert [refused.number for refused in desk.received(again, PublishRefused)] == [1]
    assert "too long ago" in desk.received(again, PublishRefused)[0].reason
    assert desk.accepted(again) == [2, 3]
    assert len(desk.written(records.Published)) == 3


def test_numbers_that_are_left_out_do_not_make_it_remember_more() -> None:
    desk = Desk(BrokerConfig(publishes_remembered=2))
    link = desk.attach()
    desk.send(link, *[Publish(number, Event(SUBJECT, {})) for number in (1, 2, 9, 10, 30)])
    assert list(desk.broker.state.publishers[f"{ALICE}/phone"].recent) == [30]


BAD_EVENTS: list[tuple[Event, str]] = [
    (Event("", {}), "subject"),
    (Event("s" * 257, {}), "subject"),
    (Event(SUBJECT, {"": 1}), "attribute names"),
    (Event(SUBJECT, {"n" * 60_000: 1}), "attribute names"),
    (Event(SUBJECT, {"A": {"nested": 1}}), "type dict"),
    (Event(SUBJECT, {"A": [[1]]}), "type list"),
    (Event(SUBJECT, {"A": None}), "type NoneType"),
    (Event(SUBJECT, {"A": b"raw"}), "type bytes"),
    (Event(SUBJECT, {"A": float("nan")}), "not a number"),
    (Event(SUBJECT, {"A": 2**63}), "64 bits"),
    (Event(SUBJECT, {"A": [0] * (EVENT_LIST_ITEMS_MAX + 1)}), "items"),
    (Event(SUBJECT, {f"A{i}": 0 for i in range(EVENT_ATTRIBUTES_MAX + 1)}), "attributes"),
    (Event(SUBJECT, {"A": "x" * EVENT_BYTES_MAX}), "event_bytes_max"),
]


@pytest.mark.parametrize(("event", "reason"), BAD_EVENTS, ids=[reason for _, reason in BAD_EVENTS])
def test_a_bad_event_is_refused_with_its_fault_and_the_next_one_is_taken(desk: Desk, event: Event, reason: str) -> None:
    link = desk.attach()
    desk.send(link, Publish(1, event), Publish(2, Event(SUBJECT, {"N": 2})))
    (refused,) = desk.received(link, PublishRefused)
    assert refused.number == 1
    assert reason in refused.reason
    assert desk.accepted(link) == [2]
    assert [record.acceptance.number for record in desk.written(records.Published)] == [2]


def test_a_refused_publish_is_refused_when_repeated_after_others(desk: Desk) -> None:
    link = desk.attach()
    desk.send(link, Publish(1, Event("", {})), Publish(2, Event(SUBJECT, {"N": 2})))
    again = desk.attach()
    desk.send(again, Publish(1, Event("", {})), Publish(2, Event(SUBJECT, {"N": 2})))
    assert [refused.number for refused in desk.received(again, PublishRefused)] == [1]
    assert desk.accepted(again) == [2]


def test_the_largest_event_can_be_notified_to_as_many_subscriptions_as_a_session_may_have() -> None:
    """A notification that does not fit its message could never be delivered (limits.EVENT_BYTES_MAX)."""
    config = BrokerConfig(server="wb0123456789")
    desk = Desk(config)
    link = desk.attach()
    for number in range(config.user_subscriptions_max):
        desk.subscribed(link, f"N > {-number}")
    text = "x" * (EVENT_BYTES_MAX - 1_000)
    spare = EVENT_BYTES_MAX - size_of(Event(SUBJECT, {"N": 1, "Text": text}))
    largest, larger = (Event(SUBJECT, {"N": 1, "Text": text + "x" * extra}) for extra in (spare, spare + 1))
    desk.send(link, Publish(1, largest), Publish(2, larger))
    assert desk.accepted(link) == [1]
    (notify,) = desk.received(link, Notify)
    assert len(notify.subscriptions) == config.user_subscriptions_max


def test_nothing_is_published_before_the_attachment(desk: Desk) -> None:
    link = desk.open(ALICE, "phone")
    desk.publish(link, 1)
    assert desk.out.get(link) is None
    assert desk.written(records.Published) == []


def test_the_id_is_that_of_the_record_also_if_drops_are_written_before_it() -> None:
    queue = QueuePolicy(notifications_max=1, age_max_s=10.0)
    desk = Desk(BrokerConfig(queue=queue, refuse_when_full=(SUBJECT,), sweep_s=None))
    reader, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(reader)
    desk.publish(bob, 1)
    desk.later(11.0)
    desk.publish(bob, 2)
    assert len(desk.written(records.Dropped)) == 1
    for accepted in desk.received(bob, PublishAccepted):
        record = records.decode_record(desk.log[accepted.id.number])
        assert isinstance(record, records.Published)
        assert (record.acceptance.id, record.acceptance.number) == (accepted.id, accepted.number)
    assert len(desk.received(bob, PublishAccepted)) == 2
