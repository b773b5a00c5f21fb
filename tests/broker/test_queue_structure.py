"""The queues of one session against plain lists: finding, taking, dropping, storing (DESIGN 5.4, SPEC U-02)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Queued, QueuedGap
from wanderbus.broker.queues.stored_blocks import Block
from wanderbus.broker.state.rows import EventRow
from wanderbus.event import EventId

Changed = dict[tuple[str, int], None]


def event_id(number: int) -> EventId:
    return EventId("wb", 1, number)


def queue_of(count: int, *, subscriptions: tuple[str, ...] = ("a", "b"), first: int = 1) -> SessionQueue:
    queue = SessionQueue("user/session", {})
    for number in range(first, first + count):
        queue.append(Queued(number, EventRow(event_id(number), number, b"event"), subscriptions))
    return queue


def shape(queue: SessionQueue, subscription: str) -> list[object]:
    """A number of a notification, ``(first, last)`` of a gap."""
    its_own = queue.queues.get(subscription, ())
    return [item.number if isinstance(item, Queued) else (item.number, item.last) for item in its_own]


def numbers(queue: SessionQueue) -> list[int]:
    """The notifications that wait for anybody."""
    return [entry.number for entry in queue]


def test_u02_gaps_that_touch_become_one_with_counts_by_reason_and_are_of_one_subscription() -> None:
    queue = queue_of(5)
    queue.drop("a", 2, 2, "cap")
    queue.drop("a", 4, 4, "age")
    assert shape(queue, "a") == [1, (2, 2), 3, (4, 4), 5]
    queue.drop("a", 3, 3, "cap")
    assert shape(queue, "a") == [1, (2, 4), 5]
    gap = queue.after("a", 1)
    assert isinstance(gap, QueuedGap)
    assert gap.lost == {"cap": 2, "age": 1}
    assert shape(queue, "b") == [1, 2, 3, 4, 5]


def test_g25_a_notification_is_released_when_the_last_subscription_lets_it_go_wherever_it_is() -> None:
    queue = queue_of(3)
    assert queue.take("a", 3) == (3, [])
    assert numbers(queue) == [1, 2, 3]
    dropped, released = queue.drop("b", 2, 2, "age")
    assert (dropped, [entry.number for entry in released]) == (1, [2])
    assert numbers(queue) == [1, 3]
    assert queue.drop("b", 2, 2, "age") == (0, [])
    taken, released = queue.take("b", 9)
    assert (taken, [entry.number for entry in released]) == (2, [1, 3])
    assert (len(queue), queue.queues) == (0, {})


def test_the_next_item_is_found_behind_any_number() -> None:
    queue = queue_of(6)
    queue.drop("a", 3, 4, "cap")
    found = [queue.after("a", number) for number in range(7)]
    assert [item and (item.number, item.last) for item in found] == [
        (1, 1),
        (2, 2),
        (3, 4),
        (3, 4),
        (5, 5),
        (6, 6),
        None,
    ]
    assert queue.after("never", 0) is None


def test_an_acknowledgement_reaches_only_queues_with_something_at_its_number() -> None:
    queue = queue_of(2, subscriptions=("a",))
    for number, name in ((3, "b"), (4, "c"), (5, "a"), (6, "d")):
        queue.append(Queued(number, EventRow(event_id(number), number, b"event"), (name,)))
    queue.drop("c", 4, 4, "cap")
    assert [sorted(queue.reached(number)) for number in (0, 2, 3, 4, 6)] == [
        [],
        ["a"],
        ["a", "b"],
        ["a", "b", "c"],
        ["a", "b", "c", "d"],
    ]
    queue.take("a", 2)
    queue.take("b", 3)
    assert list(queue.reached(4)) == ["c"]


def test_u02_a_gap_is_taken_as_far_as_it_was_seen() -> None:
    """Some of it may have come before it was dropped."""
    queue = queue_of(9, subscriptions=("a",))
    for number, reason in ((3, "cap"), (4, "age"), (5, "cap"), (6, "cap")):
        queue.drop("a", number, number, reason)
    assert queue.take("a", 4)[0] == 2
    assert shape(queue, "a") == [(5, 6), 7, 8, 9]
    queue.drop("a", 7, 7, "age")
    gap = queue.after("a", 5)
    assert isinstance(gap, QueuedGap)
    assert (gap.lost, gap.beyond(4)) == ({"cap": 2, "age": 1}, gap)
    assert [gap.beyond(number).lost for number in (5, 6)] == [{"cap": 1, "age": 1}, {"age": 1}]
    assert queue.take("a", 7) == (0, [])
    assert shape(queue, "a") == [8, 9]
    assert queue.take("a", 12)[0] == 2
    queue.append(Queued(13, EventRow(event_id(13), 13, b""), ("a",)))
    assert shape(queue, "a") == [13]


def test_u02_a_gap_above_the_stored_numbers_reports_the_possible_count() -> None:
    queue = queue_of(2_000, subscriptions=("a",))
    for number in range(1, 1_501):
        queue.drop("a", number, number, "cap" if number < 1_200 else "age")
    gap = queue.after("a", 0)
    assert isinstance(gap, QueuedGap)
    assert gap.beyond(1_000).lost == {"cap": 199, "age": 301}
    assert gap.beyond(1_498).lost == {"age": 2}
    assert queue.take("a", 1_400)[0] == 0
    queue.drop("a", 1_501, 1_501, "cap")
    rest = queue.after("a", 1_400)
    assert isinstance(rest, QueuedGap)
    assert (rest.number, rest.last, rest.count) == (1_401, 1_501, 101)


def test_equal_entries_are_stored_once() -> None:
    queue = SessionQueue("user/session", {})
    for number in (1, 2):
        queue.append(
            Queued(number, EventRow(event_id(number), 1, b""), (f"a{number * 0}", "b"), ((f"a{number * 0}", "phone"),))
        )
    one, two = queue
    assert one.subscriptions is two.subscriptions
    assert one.bound is two.bound


def test_g07_an_heir_has_what_waits_for_the_ended_one_gaps_included() -> None:
    queue = queue_of(4)
    queue.drop("a", 2, 2, "cap")
    queue.rename("a", "c")
    assert shape(queue, "c") == [1, (2, 2), 3, 4]
    assert shape(queue, "a") == []
    assert {entry.subscriptions for entry in queue if entry.number != 2} == {("c", "b")}


def test_queued_numbers_are_listed_with_their_subscriptions() -> None:
    queue = queue_of(3)
    queue.drop("a", 2, 2, "cap")
    queue.take("b", 1)
    listed = [[(name, item.number) for name, item in group] for group in queue.items_from(1)]
    assert listed == [[("a", 1)], [("a", 2), ("b", 2)], [("a", 3), ("b", 3)]]
    assert [[name for name, _ in group] for group in queue.items_from(3, "b")] == [["b"]]


names = st.sampled_from("abc")
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), names, st.integers(1, 80), st.just(0)),
        st.tuples(st.just("take"), names, st.integers(0, 200), st.just(0)),
        st.tuples(st.just("drop"), names, st.integers(0, 200), st.integers(0, 70)),
        st.tuples(st.just("rename"), names, st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(operations)
@example([("append", "a", 1, 0), ("take", "b", 1, 0), ("drop", "c", 0, 1), ("drop", "a", 0, 1)])
def test_queues_are_as_lists_of_numbers_would_be(script: list[tuple[str, str, int, int]]) -> None:
    """The model: of each subscription the numbers that wait, and queues loaded from stored blocks are the same."""
    changed: Changed = {}
    queue, next_number = SessionQueue("key", changed), 1
    model: dict[str, list[int]] = {name: [] for name in "abc"}
    settled = dict.fromkeys("abc", 0)
    stored: dict[int, Block] = {}
    events: dict[EventId, EventRow] = {}
    for what, drawn, number, more in script:
        name = drawn if drawn in model else max(each for each in model if each.startswith(drawn))
        match what:
            case "append":
                for _ in range(number):
                    matched = tuple(each for each in sorted(model) if next_number % 3 or each == name)
                    event = EventRow(event_id(next_number), 1, b"")
                    events[event.id] = event
                    queue.append(Queued(next_number, event, matched))
                    for each in matched:
                        model[each].append(next_number)
                    next_number += 1
            case "take":
                taken, _ = queue.take(name, number)
                assert taken == sum(each <= number for each in model[name])
                model[name] = [each for each in model[name] if each > number]
                settled[name] = max(settled[name], min(number, next_number - 1))
            case "drop":
                dropped, _ = queue.drop(name, number, number + more, "cap")
                assert dropped == sum(number <= each <= number + more for each in model[name])
                model[name] = [each for each in model[name] if not number <= each <= number + more]
            case "rename":
                queue.rename(name, successor := f"{name}'")
                model[successor] = model.pop(name)
                settled[successor], settled[name] = settled[name], next_number - 1
        check(queue, model)
        store(queue, changed, stored)
        loaded = SessionQueue("key", {})
        loaded.load(sorted(stored.items()), events, settled)
        assert list(loaded.reached(next_number // 2)) == list(queue.reached(next_number // 2))
        assert {name: list(each) for name, each in loaded.queues.items()} == {
            name: list(each) for name, each in queue.queues.items()
        }
        assert list(loaded) == list(queue)


def store(queue: SessionQueue, changed: Changed, stored: dict[int, Block]) -> None:
    for _, block in changed:
        if row := queue.block(block):
            stored[block] = row
        else:
            stored.pop(block, None)
    changed.clear()


def check(queue: SessionQueue, model: dict[str, list[int]]) -> None:
    for name, waiting in model.items():
        items = list(queue.queues.get(name, ()))
        assert [item.number for item in items if isinstance(item, Queued)] == waiting
        if its_own := queue.queues.get(name):
            assert its_own.waiting == len(waiting)
            assert its_own.gaps == sum(isinstance(item, QueuedGap) for item in items)
            assert its_own.queued_bytes == 0
        for one, two in pairwise(items):
            assert one.last < two.number
            assert not (isinstance(one, QueuedGap) and isinstance(two, QueuedGap)), "gaps that touch are one"
    assert numbers(queue) == sorted({number for waiting in model.values() for number in waiting})
    first = {name: next(iter(its_own)).number for name, its_own in queue.queues.items()}
    for number in first.values():
        assert {name for name, its_first in first.items() if its_first <= number} <= set(queue.reached(number))
