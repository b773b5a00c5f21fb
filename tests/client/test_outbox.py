"""Order of sending and removing the events of an outbox (SPEC G-20, X25)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.town import Phone, Town, connected
from wanderbus import protocol
from wanderbus.client.machine.messages import PublishEvent, PublishSettled
from wanderbus.client.machine.outbox import RETRY_S_MAX, RETRY_S_MIN, WINDOW, OutboxNumbers
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol.outbox_order import is_temporary

EPOCH = 99


def sendable(outbox: OutboxNumbers, now: float = 0.0) -> list[int]:
    numbers = []
    while (number := outbox.next(now)) is not None:
        numbers.append(number)
    return numbers


def test_x25_events_go_out_in_the_order_of_their_numbers() -> None:
    outbox = OutboxNumbers([3, 1, 2])
    outbox.stored(4)
    assert sendable(outbox) == [1, 2, 3, 4]
    assert sendable(outbox) == []


def test_x25_no_more_are_under_way_than_the_broker_remembers() -> None:
    """The window covers numbers, including answered events that are not durably removed: they may be sent again."""
    assert BrokerConfig().publishes_remembered > WINDOW
    outbox = OutboxNumbers(range(1, 2 * WINDOW))
    assert sendable(outbox) == list(range(1, WINDOW + 1))
    assert all(outbox.settled(number, None, 0.0) for number in range(1, 11))
    assert sendable(outbox) == []
    outbox.removed([2, 3])
    assert sendable(outbox) == [], "the oldest is still there"
    outbox.removed([1, 4])
    assert sendable(outbox) == [WINDOW + 1, WINDOW + 2, WINDOW + 3, WINDOW + 4]


@pytest.mark.parametrize(
    ("limit", "later"),
    [
        ("disk_full", True),
        ("forwarded_bytes_max", True),
        ("routes_unknown", True),
        ("queue.notifications_max", True),
        ("subscription.queue.bytes_max", True),
        ("user_queued_bytes_max", True),
        ("event_bytes_max", False),
        (None, False),
    ],
)
def test_g20_only_want_of_room_passes(limit: str | None, later: bool) -> None:
    assert is_temporary(limit) is later
    outbox = OutboxNumbers([1])
    assert outbox.next(0.0) == 1
    assert outbox.settled(1, limit, 0.0) is not later
    assert outbox.next(RETRY_S_MIN) == (1 if later else None)


def test_g20_an_event_refused_for_space_is_retried_with_later_ones_after_growing_pauses() -> None:
    outbox = OutboxNumbers([1, 2, 3])
    now, pauses = 0.0, []
    for _ in range(10):
        assert sendable(outbox, now) == [1, 2, 3]
        for number in (1, 2, 3):
            assert not outbox.settled(number, "disk_full", now)
        wake_at = outbox.wake_at()
        assert wake_at is not None
        pauses.append(wake_at - now)
        assert sendable(outbox, wake_at - 0.001) == []
        now = wake_at
    assert pauses[:3] == pytest.approx([RETRY_S_MIN, 2 * RETRY_S_MIN, 4 * RETRY_S_MIN])
    assert pauses[-1] == pytest.approx(RETRY_S_MAX)
    sendable(outbox, now)
    for number in (1, 2, 3):
        assert outbox.settled(number, None, now)
    outbox.stored(4)
    assert sendable(outbox, now) == [4]
    outbox.settled(4, "disk_full", now)
    assert outbox.wake_at() == pytest.approx(now + RETRY_S_MIN), "after a success the pause is short again"


def test_x25_nothing_is_sent_while_one_that_was_refused_waits_and_others_are_under_way() -> None:
    """A number that overtakes another makes that one a repeat to the broker: it would be lost."""
    outbox = OutboxNumbers([1, 2])
    sendable(outbox)
    outbox.stored(3)
    outbox.settled(1, "disk_full", 0.0)
    assert sendable(outbox, 100.0) == []
    assert outbox.wake_at() is None
    outbox.settled(2, "disk_full", 100.0)
    assert sendable(outbox, 100.0) == [1, 2, 3]


def test_x25_an_event_that_waits_for_its_turn_to_be_sent_does_not_overtake_one_that_is_refused_meanwhile() -> None:
    outbox = OutboxNumbers([1, 2])
    assert outbox.next(0.0) == 1
    assert outbox.ready(0.0), "the second waits for its turn"
    outbox.settled(1, "disk_full", 0.0)
    assert outbox.next(0.0) is None
    assert sendable(outbox, RETRY_S_MIN) == [1, 2]


class Store:
    """An outbox's file, and a model of the broker: it accepts the next number in order, or has no room."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.last = 0
        self.taken: list[int] = []
        self.held_up: int | None = None

    def answer(self, number: int, *, room: bool) -> str | None:
        """Return the limit that was met; None if it was taken, now or before."""
        if number <= (self.taken[-1] if self.taken else 0):
            assert number in self.taken, "lost: taken for a repeat"
            return None
        if self.held_up is not None and number > self.held_up:
            return "disk_full"
        self.held_up = None if room else number
        if room:
            self.taken.append(number)
        return None if room else "disk_full"


@settings(max_examples=60)
@given(st.data())
def test_x25_every_stored_event_is_taken_once_and_in_order_over_crashes(data: st.DataObject) -> None:
    """Kill -9 of the agent at any point, broken connections, a disk of the broker that is full now and then."""
    store, now = Store(), 0.0
    outbox, wire = OutboxNumbers(), list[int]()
    plan = data.draw(
        st.lists(st.sampled_from(["store", "send", "answer", "full", "crash", "break", "wait"]), max_size=60)
    )
    for step in [*plan, *["wait", "send", "answer"] * 60]:
        match step:
            case "store":
                store.last += 1
                store.rows.append(store.last)
                outbox.stored(store.last)
            case "send":
                wire += sendable(outbox, now)
            case "answer" | "full":
                for number in wire:
                    if outbox.settled(number, store.answer(number, room=step == "answer"), now):
                        store.rows.remove(number)
                        outbox.removed([number])
                wire = []
            case "crash":
                outbox, wire, store.held_up = OutboxNumbers(store.rows), [], None
            case "break":
                # The responses are lost; unanswered events are sent again on a new connection, in order.
                for number in wire[: data.draw(st.integers(0, len(wire)))]:
                    store.answer(number, room=data.draw(st.booleans()))
                store.held_up = None
            case "wait":
                now += RETRY_S_MAX
    assert store.taken == list(range(1, store.last + 1))
    assert store.rows == []


def outbox_phone(town: Town, stored: list[int]) -> Phone:
    """Another life of one device, which publishes everything that its outbox holds."""
    phone = Phone(town, "bob", number=2, epoch=int(town.world.now * 1_000) + 7).connect()
    for number in stored:
        phone.node.feed([PublishEvent(number, protocol.encode_event(Event("Trade", {"N": number})), outbox=EPOCH)])
    return phone


def test_x25_exactly_once_over_agents_that_are_killed() -> None:
    """The machines on both sides, over a network: each life repeats the events that the previous one got no response
    for.
    """
    town = Town()
    alice = connected(town)
    stored = list(range(1, 31))
    for pause_s in (0.001, 0.006, 0.011, 0.016, 2.0):
        bob = outbox_phone(town, stored)
        town.run(pause_s)
        settled = {each.number for each in bob.all_of(PublishSettled) if each.outbox and each.id}
        stored = [number for number in stored if number not in list(settled)[:5]]
        bob.node.kill()
    town.run(1.0)
    assert alice.received == list(range(1, 31))


def test_the_outbox_and_what_is_published_beside_it_are_numbered_apart() -> None:
    town = Town()
    alice = connected(town)
    bob = outbox_phone(town, [1])
    bob.publish(100)
    town.run(1.0)
    assert sorted(alice.received) == [1, 100]
    assert sorted((each.number, each.outbox) for each in bob.all_of(PublishSettled)) == [(1, False), (1, True)]


# An outbox that was restored from a copy ------------------------------------------------------------------------------


def test_x25_a_number_of_another_event_stops_the_sending_until_the_events_have_another_epoch() -> None:
    outbox = OutboxNumbers([1, 2, 3])
    assert sendable(outbox) == [1, 2, 3]
    assert outbox.settled(1, None, 0.0)
    assert not outbox.settled(2, "number_used", 0.0)
    assert not outbox.needs_epoch, "3 may have been accepted in the present epoch"
    assert outbox.settled(3, None, 0.0)
    assert (outbox.needs_epoch, sendable(outbox, RETRY_S_MIN), outbox.wake_at()) == (True, [], None)
    outbox.renewed()
    assert sendable(outbox, RETRY_S_MIN) == [2]
