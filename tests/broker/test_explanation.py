"""Explanation, from the log, of every pair of an event and a subscription (SPEC U-01)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import ALICE, BOB, START_US, SUBJECT, Desk
from wanderbus import protocol, records
from wanderbus.broker.explained import Explained
from wanderbus.broker.explanation import Explanation
from wanderbus.broker.restrictions.restriction_text import forbidding
from wanderbus.errors import StorageError
from wanderbus.event import EventId
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Notify, NotifyAck, PublishAccepted, Purge, Unsubscribe
from wanderbus.records import Published, Subscribed, decode_record
from wanderbus.subscription import Custom, Daily, Frequency, Interval, QueuePolicy, Restriction, Subscription


def explained(desk: Desk, event: EventId, subscription: str, device: str | None = None) -> Explained:
    """Explanation from the whole log; the records that concern the pair must give the same one."""
    submitted = next(r.subscription for r in desk.written(Subscribed) if r.subscription.id == subscription)
    every, some = Explanation(event, submitted, device), Explanation(event, submitted, device)
    for offset, payload in enumerate(desk.log):
        every.apply(decode_record(payload))
        if some.concerns(offset, payload):
            some.apply(decode_record(payload))
    assert every.explained() == some.explained()
    return every.explained()


def outcome(desk: Desk, event: EventId, subscription: Subscription, device: str | None = None) -> tuple[str, str]:
    found = explained(desk, event, subscription.id, device)
    return found.outcome, found.reason


def published(desk: Desk, link: int, n: int, **more: Any) -> EventId:
    """Publish; give the event's id."""
    desk.publish(link, n, **more)
    return desk.received(link, PublishAccepted)[-1].id


@pytest.fixture
def bob(desk: Desk) -> int:
    return desk.attach(BOB)


def test_result_of_the_filter(desk: Desk, bob: int) -> None:
    subscription = desk.subscribed(desk.attach(), "N > 5 and Price < 10")
    assert outcome(desk, published(desk, bob, 1), subscription) == ("filtered", "N > 5 is false: N is 1")
    assert outcome(desk, published(desk, bob, 6), subscription) == (
        "filtered",
        "Price < 10 is unknown: the event has no Price",
    )
    other = published(desk, bob, 6, subject="Weather")
    assert outcome(desk, other, subscription) == (
        "wrong_subject",
        "the subject of the event is 'Weather', that of the subscription 'Trade'",
    )


def test_an_event_of_a_child_concerns_a_subscription_to_its_parent(desk: Desk, bob: int) -> None:
    subscription = desk.subscribed(desk.attach(), "N > 5")
    event = published(desk, bob, 1, subject="Bond")
    pair = Explanation(event, subscription, parents={"Bond": "Trade"})
    for payload in desk.log:
        pair.apply(decode_record(payload))
    assert (pair.explained().outcome, pair.explained().reason) == ("filtered", "N > 5 is false: N is 1")


def test_result_of_the_filter_in_another_language(desk: Desk, bob: int) -> None:
    subscription = desk.subscribed(desk.attach(), "N % 2 = 0", language="cesql")
    assert outcome(desk, published(desk, bob, 2), subscription)[0] == "queued"
    assert outcome(desk, published(desk, bob, 3), subscription) == (
        "filtered",
        'cesql "N % 2 = 0" is false: as cesql evaluates it: N is 3',
    )


def test_item_of_a_list_that_the_filter_matched(desk: Desk, bob: int) -> None:
    subscription = desk.subscribed(desk.attach(), "all Scores (> 5 and < 10)")
    found = explained(desk, published(desk, bob, 1, Scores=[7, 12, 1]), subscription.id)
    assert (found.outcome, found.reason) == ("filtered", "all Scores < 10 is false: item 2 of Scores is 12")
    assert [(each.attribute, each.value, each.item) for each in found.predicates] == [("Scores", 12, 1)]


def test_result_of_a_restriction(desk: Desk, bob: int) -> None:
    alice = desk.attach()
    subscription = desk.subscribed(alice, restrictions=(Frequency(15.0),))
    published(desk, bob, 1)
    desk.later(14)
    event = published(desk, bob, 2)
    found = explained(desk, event, subscription.id)
    assert (found.outcome, found.reason) == (
        "restricted",
        "at most one notification in 15 s, and the last was 14 s before",
    )
    assert (found.restriction, found.at_us) == (Frequency(15.0), START_US + 14_000_000)


def test_a_log_that_does_not_name_the_restriction(desk: Desk, bob: int) -> None:
    subscription = desk.subscribed(desk.attach(), restrictions=(Frequency(15.0),))
    published(desk, bob, 1)
    event = published(desk, bob, 2)
    pair = Explanation(event, subscription)
    for payload in desk.log:
        record = decode_record(payload)
        if isinstance(record, records.Published):
            record = msgspec.structs.replace(record, delivery=records.Delivery())
        pair.apply(record)
    assert pair.explained().reason == "by a restriction that the log does not name"


MONDAY_US = 1_700_496_000_000_000  # 2023-11-20 16:00:00 UTC


@pytest.mark.parametrize(
    ("restrictions", "words"),
    [
        ((Frequency(0.5),), "at most one notification in 0.5 s, and the last was 0.25 s before"),
        ((Frequency(60.0, "away"),), "while the user is away: at most one notification in 60 s, and the last was"),
        ((Custom("tide", {"port": "Santos"}),), "the restriction tide port=Santos blocked it"),
        (
            (Interval(0, 1_000_000),),
            "only from 1970-01-01T00:00:00.000Z to 1970-01-01T00:00:01.000Z, and it was 2023-11-20T16:00:00.000Z",
        ),
        (
            (Interval(0, 2**62),),
            "only from 1970-01-01T00:00:00.000Z to 4611686018427387904 µs since 1970, and it was 2023-11-20T16:00:00",
        ),
        (
            (
                Daily("16:00", "17:00", "America/Sao_Paulo"),
                Frequency(1.0),
                Daily("08:00", "09:00", "UTC", weekdays=(6, 7)),
            ),
            "only from 16:00 to 17:00 America/Sao_Paulo, and it was Monday 13:00:00 there; "
            "only from 08:00 to 09:00 UTC on Saturday, Sunday, and it was Monday 16:00:00 there",
        ),
    ],
)
def test_restrictions_in_words(restrictions: tuple[Restriction, ...], words: str) -> None:
    found = forbidding(restrictions, 0, now_us=MONDAY_US, received_us=MONDAY_US, last_us=MONDAY_US - 250_000)
    assert found.startswith(words)


def test_a_missing_subscription(desk: Desk, bob: int) -> None:
    alice = desk.attach()
    early = published(desk, bob, 1)
    short, asked = desk.subscribed(alice, lifetime_s=10.0), desk.subscribed(alice, "N > 0")
    desk.send(alice, Unsubscribe(90, asked.id))
    desk.later(11)
    late = published(desk, bob, 2)
    assert outcome(desk, early, short)[0] == "not_submitted"
    assert outcome(desk, late, short) == ("expired", "the subscription expired at 2023-11-14T22:13:30.000Z")
    assert outcome(desk, late, asked) == (
        "ended",
        "the subscription was ended at 2023-11-14T22:13:20.000Z as its user asked",
    )
    desk.send(alice, protocol.Renew(91, short.id, None))
    assert outcome(desk, published(desk, bob, 3), short)[0] == "queued"
    assert outcome(desk, late, short)[0] == "expired"


def test_discarded_subscriptions_have_ended(desk: Desk, bob: int) -> None:
    subscription = desk.subscribed(desk.attach())
    desk.attach(epoch=2, keep=False)
    assert "without its previous subscriptions" in outcome(desk, published(desk, bob, 1), subscription)[1]


def test_on_the_way_to_the_devices(desk: Desk, bob: int) -> None:
    phone, tablet = desk.attach(), desk.attach(ALICE, "tablet")
    subscription = desk.subscribed(phone)
    event = published(desk, bob, 1)
    assert outcome(desk, event, subscription) == ("queued", "waits for phone, tablet")
    desk.later(2)
    desk.take(phone, 1)
    assert outcome(desk, event, subscription) == ("queued", "waits for tablet")
    assert outcome(desk, event, subscription, "phone")[0] == "delivered"
    assert outcome(desk, event, subscription, "tablet") == ("queued", "waits for tablet")
    assert outcome(desk, event, subscription, "watch") == (
        "not_a_member",
        "the device watch is no member of the session",
    )
    desk.later(3)
    desk.take(tablet, 1)
    found = explained(desk, event, subscription.id)
    assert found.outcome == "delivered"
    assert found.reason == (
        "phone acknowledged it at 2023-11-14T22:13:22.000Z, 2.000 s after the event, "
        "tablet acknowledged it at 2023-11-14T22:13:25.000Z, 5.000 s after the event"
    )
    assert [(each.device, each.after_s) for each in found.devices] == [("phone", 2.0), ("tablet", 5.0)]
    assert (found.number, found.at_us, found.published_us) == (1, START_US + 5_000_000, START_US)


def test_bound_to_a_device(desk: Desk, bob: int) -> None:
    phone, tablet = desk.attach(), desk.attach(ALICE, "tablet")
    subscription = desk.subscribed(phone, this_device_only=True)
    event = published(desk, bob, 1)
    assert outcome(desk, event, subscription) == ("queued", "waits for phone")
    assert outcome(desk, event, subscription, "tablet") == (
        "bound_elsewhere",
        "the subscription is bound to the device phone",
    )
    desk.ask(phone, protocol.Leave(80))
    assert outcome(desk, event, subscription)[0] == "dropped"
    assert "because of device_left" in outcome(desk, event, subscription)[1]
    assert desk.stream(tablet) == []


def test_a_full_queue() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=1, when_full="drop_oldest")))
    alice, bob = desk.attach(), desk.attach(BOB)
    subscriptions = [desk.subscribed(alice, expression) for expression in ("N > 0", "N > -1")]
    desk.close(alice)
    *former, last = [published(desk, bob, n) for n in range(1, 5)]
    for subscription in subscriptions:
        for event in former:
            assert outcome(desk, event, subscription) == (
                "dropped",
                "dropped at 2023-11-14T22:13:20.000Z because of queue.notifications_max",
            )
        assert outcome(desk, last, subscription)[0] == "queued"
    again = desk.attach()
    desk.send(again, Purge(1, ALICE, "default", None))
    assert "purged" in outcome(desk, last, subscriptions[1])[1]


def test_a_notification_acknowledged_before_its_drop_was_delivered(desk: Desk, bob: int) -> None:
    phone, _ = desk.attach(), desk.attach(ALICE, "tablet")
    subscription = desk.subscribed(phone)
    event = published(desk, bob, 1)
    desk.take(phone, 1)
    desk.send(phone, Purge(1, ALICE, "default", None))
    found = explained(desk, event, subscription.id)
    assert (found.outcome, [each.device for each in found.devices if each.acknowledged_us]) == ("dropped", ["phone"])
    assert outcome(desk, event, subscription, "phone")[0] == "delivered"


def test_an_event_that_is_not_there(desk: Desk) -> None:
    subscription = desk.subscribed(desk.attach())
    with pytest.raises(StorageError, match="has no event wb-1-0"):
        explained(desk, EventId("wb", 1, 0), subscription.id)


# Random stories -------------------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 3), st.sampled_from(["Trade", "Trade", "Weather"])),
    st.tuples(st.just("subscribe"), st.sampled_from(["", "N > 0", "N > 1 and M > 0"]), st.booleans(), st.booleans()),
    st.tuples(st.just("attach"), st.sampled_from(["phone", "tablet"]), st.sampled_from(["default", "other"])),
    st.tuples(st.just("take"), st.sampled_from(["phone", "tablet"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["close", "leave", "unsubscribe", "purge"]), st.sampled_from(["phone", "tablet"])),
    st.tuples(st.just("later"), st.sampled_from([1, 20])),
)


class Story:
    """Random steps on a desk, and the notifications that the devices took."""

    def __init__(self) -> None:
        self.desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=3, when_full="drop_oldest")))
        self.bob = self.desk.attach(BOB)
        self.links: dict[str, int] = {}
        self.read: dict[int, int] = {}
        """Number of received notifications that were taken, by link."""
        self.events: list[EventId] = []
        self.took: set[tuple[EventId, str, str]] = set()
        self.blocked: dict[tuple[EventId, str], str] = {}
        """Outcome of an event that a subscription did not get, as it stood when the event was published."""

    def step(self, word: str, *arguments: Any) -> None:
        getattr(self, word)(*arguments)

    def publish(self, n: int, subject: str) -> None:
        ended: dict[str, str] = {}
        known: dict[str, Subscription] = {}
        for record in map(decode_record, self.desk.log):
            match record:
                case Subscribed(subscription=each) | records.Changed(subscription=each):
                    known[each.id], ended[each.id] = each, ""
                case records.Unsubscribed(subscription=identity, reason=reason):
                    ended[identity] = reason
        found = {id: self._blocking(each, ended[id], n, subject) for id, each in known.items()}
        event = published(self.desk, self.bob, n, subject=subject)
        self.events.append(event)
        self.blocked |= {(event, id): outcome for id, outcome in found.items() if outcome is not None}

    def _blocking(self, subscription: Subscription, ended: str, n: int, subject: str) -> str | None:
        if ended not in ("", "expired"):
            return "ended"
        if ended or (subscription.expires_us is not None and subscription.expires_us <= self.desk.wall_us):
            return "expired"
        if subject != SUBJECT:
            return "wrong_subject"
        return None if {"": True, "N > 0": n > 0}.get(subscription.expression, False) else "filtered"

    def subscribe(self, expression: str, restricted: bool, bound: bool) -> None:
        if link := self.links.get("phone"):
            restrictions = (Frequency(10.0),) if restricted else ()
            self.desk.subscribe(
                link, expression, restrictions=restrictions, this_device_only=bound, lifetime_s=30.0 if bound else None
            )

    def attach(self, device: str, session: str) -> None:
        if device not in self.links:
            self.links[device] = self.desk.attach(ALICE, device, session=session)

    def take(self, device: str, count: int) -> None:
        if link := self.links.get(device):
            heard = self.desk.received(link, Notify)
            start = self.read.get(link, 0)
            for notify in heard[start : start + count]:
                self.took |= {(notify.id, each, device) for each in self.waiting(link, notify)}
                self.desk.send(link, *[NotifyAck(reader, notify.number) for reader in notify.readers])
            self.read[link] = min(len(heard), start + count)

    def waiting(self, link: int, notify: Notify) -> set[str]:
        """The matched subscriptions that the notification still waits for; dropped before its arrival counts as
        dropped.

        A reader takes what the ended subscription left behind for the one that inherits from it.
        """
        open_link = self.desk.broker._links.get(link)
        assert open_link is not None
        queue = self.desk.broker.state.queue.get(f"{ALICE}/{open_link.session}")
        record = decode_record(self.desk.log[notify.id.number])
        assert isinstance(record, Published)
        matched = {each for notified in record.delivery.notified for each in notified.subscriptions}
        inherited = {each.subscription.id: each.inherits for each in self.desk.written(Subscribed)}
        found = set()
        for reader in open_link.readers():
            if reader.handle in notify.readers and queue is not None and reader.subscription in queue.queues:
                each: str | None = reader.subscription
                waits = queue.queues[reader.subscription].holds(notify.number)
                while each is not None and waits:
                    found |= {each} & matched
                    each = inherited[each]
        return found

    def close(self, device: str) -> None:
        if link := self.links.pop(device, None):
            self.desk.close(link)

    def leave(self, device: str) -> None:
        if link := self.links.pop(device, None):
            self.desk.ask(link, protocol.Leave(99))

    def unsubscribe(self, device: str) -> None:
        if (link := self.links.get(device)) and (live := list(self.desk.broker.state.subscriptions.values())):
            self.desk.send(link, Unsubscribe(98, live[0].subscription.id))

    def purge(self, device: str) -> None:
        if link := self.links.get(device):
            self.desk.send(link, Purge(97, ALICE, "default", None))

    def later(self, seconds: int) -> None:
        self.desk.later(seconds)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_every_pair_has_the_outcome_that_the_devices_saw(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    story.attach("phone", "default")
    story.subscribe("", False, False)
    for step in steps:
        story.step(*step)
    desk = story.desk
    subscriptions = [record.subscription for record in desk.written(Subscribed)]
    generated = set(_generated(desk))
    for event in story.events:
        for subscription in subscriptions:
            found = explained(desk, event, subscription.id)
            acknowledged = {device for e, s, device in story.took if (e, s) == (event, subscription.id)}
            assert {each.device for each in found.devices if each.acknowledged_us is not None} == acknowledged
            assert (found.number is not None) == ((event, subscription.id) in generated)
            assert (found.outcome in ("queued", "dropped", "delivered")) == (found.number is not None)
            assert not (found.outcome == "delivered" and not acknowledged)
            if found.number is None:
                is_later = int(subscription.id.rpartition("-")[2]) > event.number
                assert found.outcome == story.blocked.get(
                    (event, subscription.id), "not_submitted" if is_later else "restricted"
                )
            if found.outcome == "filtered":
                assert all(predicate.truth is not True for predicate in found.predicates)
            for device in ("phone", "tablet"):
                alone = explained(desk, event, subscription.id, device)
                assert (alone.outcome == "delivered") == (device in acknowledged)
    counters: list[Any] = [*desk.broker.state.sessions_of(ALICE)]
    if (former := desk.broker.state.former.get(ALICE)) is not None and former.sessions is not None:
        counters.append(former.sessions)
    outcomes = Counter(explained(desk, event, s.id).outcome for event in story.events for s in subscriptions)
    for counted in ("restricted", "delivered", "queued"):
        assert outcomes[counted] == sum(getattr(each, counted, 0) for each in counters), counted
    assert outcomes["dropped"] == sum(sum(each.dropped.values()) for each in counters)


def _generated(desk: Desk) -> list[tuple[EventId, str]]:
    found = []
    for payload in desk.log:
        record = decode_record(payload)
        if isinstance(record, records.Published):
            found += [
                (record.acceptance.id, s) for notified in record.delivery.notified for s in notified.subscriptions
            ]
    return found


def test_later_records_and_those_of_others_change_nothing(desk: Desk, bob: int) -> None:
    phone, tablet = desk.attach(), desk.attach(ALICE, "tablet")
    bound, other = desk.subscribed(phone, this_device_only=True), desk.subscribed(phone, "N > 0")
    event = published(desk, bob, 1)
    desk.send(tablet, Purge(1, ALICE, "default", other.id))
    assert outcome(desk, event, bound)[0] == "queued"
    desk.take(phone, 1)
    desk.send(phone, Unsubscribe(90, bound.id))
    desk.ask(phone, protocol.Leave(91))
    desk.take(tablet, 1)
    assert outcome(desk, event, bound)[0] == "delivered"
    assert "purged" in outcome(desk, event, other)[1]


def test_a_filter_that_takes_too_much_work_is_not_evaluated_again(desk: Desk, bob: int) -> None:
    wanted = desk.subscribed(desk.attach(), "UPPER(Text) = 'X'", language="cesql")
    event = published(desk, bob, 1, Text="y" * 9_000)
    assert outcome(desk, event, wanted)[0] == "filtered"
    pair = Explanation(event, wanted, work_max=1_000)
    for payload in desk.log:
        pair.apply(decode_record(payload))
    found = pair.explained()
    assert found.outcome == "undecided"
    assert found.reason.startswith("not evaluated: the filter takes up to ")
    assert found.reason.endswith(" units of work for this event; the limit is 1000")


def test_a_restricted_match_needs_no_evaluation(desk: Desk, bob: int) -> None:
    until = (Interval(START_US - 10_000_000, START_US - 5_000_000),)
    wanted = desk.subscribed(desk.attach(), "UPPER(Text) = 'X' OR TRUE", language="cesql", restrictions=until)
    event = published(desk, bob, 1, Text="y" * 9_000)
    pair = Explanation(event, wanted, work_max=1_000)
    for payload in desk.log:
        pair.apply(decode_record(payload))
    assert pair.explained().outcome == "restricted"
