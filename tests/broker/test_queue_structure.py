"""One session's queue against a plain list: finding, taking, dropping, merging, storing (DESIGN 5.4, SPEC U-02)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.broker.queue import LOSSES_MAX, Block, Hole, Queue, Queued, losses_for
from wanderbus.broker.rows import EventRow
from wanderbus.event import Loss


def queue_of(count: int, *, subscriptions: tuple[str, ...] = ("a", "b"), first: int = 1) -> Queue:
    queue = Queue("user/session", {})
    for number in range(first, first + count):
        queue.append(Queued(number, EventRow(number, number, b"event"), subscriptions))
    return queue


def shape(queue: Queue) -> list[object]:
    """A number of a notification, ``(first, last)`` of a gap."""
    return [entry.number if isinstance(entry, Queued) else (entry.number, entry.last) for entry in queue]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_entry_is_found_by_any_number_it_covers(number: int) -> None:
    queue = queue_of(5)
    queue.drop(1, 3, "cap", ())
    assert shape(queue) == [(1, 3), 4, 5]
    assert queue.covering(number) is queue.head
    assert queue.covering(6) is None
    assert queue.covering(0) is None


def test_u02_gaps_that_touch_become_one_with_counts_by_subscription_and_reason() -> None:
    queue = queue_of(5)
    queue.drop(2, 2, "cap", ())
    queue.drop(4, 4, "age", ())
    assert shape(queue) == [1, (2, 2), 3, (4, 4), 5]
    queue.drop(3, 3, "cap", ())
    assert shape(queue) == [1, (2, 4), 5]
    assert losses_for(queue.covering(3).lost, "phone") == (  # type: ignore[union-attr]
        Loss("a", "cap", 2),
        Loss("b", "cap", 2),
        Loss("a", "age", 1),
        Loss("b", "age", 1),
    )


def test_u02_what_is_dropped_for_some_leaves_the_rest_with_a_note_until_nothing_is_left() -> None:
    queue = queue_of(3)
    (dropped,) = queue.drop(2, 2, "age", ("a",))
    assert (dropped.subscriptions, dropped.whole) == (("a",), False)
    entry = queue.covering(2)
    assert isinstance(entry, Queued)
    assert entry.subscriptions == ("b",)
    assert losses_for(entry.lost, "phone") == (Loss("a", "age", 1),)
    assert queue.drop(2, 2, "age", ("a",)) == []
    (dropped,) = queue.drop(1, 3, "cap", ("b", "never"))[1:2]
    assert (dropped.subscriptions, dropped.whole) == (("b",), True)
    assert shape(queue) == [1, (2, 2), 3]
    assert losses_for(queue.covering(2).lost, "phone") == (  # type: ignore[union-attr]
        Loss("a", "age", 1),
        Loss("b", "cap", 1),
    )


def test_e05_a_loss_concerns_the_device_that_the_subscription_was_bound_to() -> None:
    queue = Queue("user/session", {})
    queue.append(Queued(1, EventRow(1, 1, b""), ("a", "b"), (("a", "phone"),)))
    queue.drop(1, 1, "cap", ())
    lost = queue.covering(1).lost  # type: ignore[union-attr]
    assert losses_for(lost, "phone") == (Loss("a", "cap", 1), Loss("b", "cap", 1))
    assert losses_for(lost, "laptop") == (Loss("b", "cap", 1),)


def test_a_gap_tells_so_many_losses_apart_and_no_more() -> None:
    """So that it fits a message, whatever has been subscribed to."""
    queue = Queue("user/session", {})
    for number in range(1, 2 * LOSSES_MAX + 1):
        queue.append(Queued(number, EventRow(number, 1, b""), (f"s{number}",)))
        queue.drop(number, number, "cap", ())
    (gap,) = queue
    losses = losses_for(gap.lost, "phone")
    assert len(losses) == LOSSES_MAX + 1
    assert losses[-1] == Loss("", "cap", LOSSES_MAX)


def test_entries_are_taken_from_the_head_and_a_gap_as_a_whole() -> None:
    queue = queue_of(6)
    queue.drop(3, 4, "cap", ())
    assert [entry.number for entry in queue.take(3)] == [1, 2]
    assert shape(queue) == [(3, 4), 5, 6]
    assert [entry.number for entry in queue.take(5)] == [3, 5]
    assert queue.take(5) == []
    assert [entry.number for entry in queue.take(9)] == [6]
    assert (len(queue), queue.head, queue.covering(6)) == (0, None, None)
    queue.append(Queued(7, EventRow(7, 7, b""), ("a",)))
    assert shape(queue) == [7]


def test_what_is_alike_is_there_once() -> None:
    queue = Queue("user/session", {})
    for number in (1, 2):
        queue.append(Queued(number, EventRow(number, 1, b""), (f"a{number * 0}", "b"), ((f"a{number * 0}", "phone"),)))
    one, two = queue
    assert isinstance(one, Queued)
    assert isinstance(two, Queued)
    assert one.subscriptions is two.subscriptions
    assert one.bound is two.bound


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 80), st.just(0)),
        st.tuples(st.just("take"), st.integers(0, 200), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 200), st.integers(0, 70)),
        st.tuples(st.just("drop a"), st.integers(0, 200), st.integers(0, 70)),
    ),
    max_size=30,
)


@given(operations)
def test_a_queue_is_as_a_list_of_numbers_would_be(script: list[tuple[str, int, int]]) -> None:
    """The model: of each number the matches that wait, and a queue loaded from stored blocks is the same queue."""
    changed: dict[tuple[str, int], None] = {}
    queue, next_number = Queue("key", changed), 1
    model: dict[int, set[str]] = {}
    stored: dict[int, Block] = {}
    events: dict[int, EventRow] = {}
    for what, number, more in script:
        if what == "append":
            for _ in range(number):
                matches = ("a", "b") if next_number % 3 else ("a",)
                events[next_number] = EventRow(next_number, 1, b"")
                queue.append(Queued(next_number, events[next_number], matches))
                model[next_number] = set(matches)
                next_number += 1
        elif what == "take":
            through = next(iter(model), 1) + number
            gone = [n for entry in queue.take(through) for n in range(entry.number, entry.last + 1)]
            assert gone == list(model)[: len(gone)]
            assert len(gone) == len(model) or queue.head is not None
            for each in gone:
                del model[each]
            assert not model or isinstance(queue.head, Hole) or next(iter(model)) > through
        else:
            first = min(next(iter(model), 1) + number, max(model, default=0))
            last = min(first + more, max(model, default=0))
            of = {"a"} if what == "drop a" else {"a", "b"}
            if model:
                dropped = queue.drop(first, last, "cap", () if len(of) == 2 else ("a",))
                expected = [sorted(model[n] & of) for n in range(first, last + 1) if n in model and model[n] & of]
                assert [sorted(each.subscriptions) for each in dropped] == expected
                for each in range(first, last + 1):
                    model[each] -= of
        check(queue, model, next_number)
        store(queue, changed, stored)
        loaded = Queue("key", {})
        for block in sorted(stored):
            loaded.load(block, stored[block], events)
        assert list(loaded) == list(queue)


def store(queue: Queue, changed: dict[tuple[str, int], None], stored: dict[int, Block]) -> None:
    for _, block in changed:
        if row := queue.block(block):
            stored[block] = row
        else:
            stored.pop(block, None)
    changed.clear()


def check(queue: Queue, model: dict[int, set[str]], next_number: int) -> None:
    entries = list(queue)
    assert len(entries) == len(queue)
    assert [n for entry in entries for n in range(entry.number, entry.last + 1)] == list(model)
    for number, matches in model.items():
        entry = queue.covering(number)
        assert entry is not None
        assert entry.number <= number <= entry.last
        assert (set(entry.subscriptions) if isinstance(entry, Queued) else set()) == matches
    assert queue.covering(next_number) is None
    for one, two in pairwise(entries):
        assert not (isinstance(one, Hole) and isinstance(two, Hole)), "gaps that touch are one"
