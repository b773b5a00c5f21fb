"""A full queue loses its first notification in place, with the same result as by the general way (SPEC G-15)."""

from __future__ import annotations

from random import Random

import pytest

from wanderbus.broker.queues import queue_items
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Queued, QueuedGap
from wanderbus.broker.state.rows import EventRow
from wanderbus.event import EventId

KEY = "sip:alice@example.org/default"
NAMES = ("s1", "s2")
REASONS = ("queue.notifications_max", "queue.bytes_max")


def items_of(queue: SessionQueue) -> dict[str, list[object]]:
    """Everything that waits, and what each gap remembers."""
    return {
        name: [
            (each.number, each.last, each.lost, each.numbers) if isinstance(each, QueuedGap) else each.number
            for each in own
        ]
        for name, own in queue.queues.items()
    }


def queued(number: int, subscriptions: tuple[str, ...]) -> Queued:
    return Queued(number, EventRow(EventId("wb", 1, number), number, bytes(number % 7)), subscriptions)


def rows_of(queue: SessionQueue, changed: dict[tuple[str, int], None]) -> dict[int, object]:
    return {number: queue.block(number) for _, number in sorted(changed)}


@pytest.mark.parametrize("seed", range(40))
def test_g15_displacing_is_dropping(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_items, "_NUMBERED_MAX", 12)
    draw = Random(seed)
    changes: list[dict[tuple[str, int], None]] = [{}, {}]
    queues = [SessionQueue(KEY, changed) for changed in changes]
    rows: list[dict[int, object]] = [{}, {}]
    displaced = 0
    for number in range(1, 400):
        wanted = tuple(name for name in NAMES if draw.random() < 0.8)
        for queue in queues if wanted else ():
            queue.append(queued(number, wanted))
        for name in NAMES:
            if name not in queues[0].queues or draw.random() < 0.1:
                continue
            if draw.random() < 0.05:
                through = draw.randrange(max(1, number - 12), number)
                taken = [[each.number for each in queue.take(name, through)[1]] for queue in queues]
                assert taken[0] == taken[1]
            if name not in queues[0].queues:
                continue
            oldest = queues[0].queues[name].oldest()
            if oldest is None or queues[0].queues[name].waiting < 6:
                continue
            chosen = draw.randrange(oldest.number, number + 1) if draw.random() < 0.1 else oldest.number
            reason = REASONS[draw.random() < 0.02]
            quick = queues[0].displace((name,), chosen, reason)
            if quick is None:
                dropped = queues[0].drop(name, chosen, chosen, reason)
                released = [each.number for each in dropped[1]]
            else:
                displaced += 1
                released = [] if quick.waiting else [quick.number]
            assert released == [each.number for each in queues[1].drop(name, chosen, chosen, reason)[1]]
            assert items_of(queues[0]) == items_of(queues[1])
        if draw.random() < 0.1:
            for queue, changed, stored in zip(queues, changes, rows, strict=True):
                stored |= rows_of(queue, changed)
                changed.clear()
                queue.saved()
            assert rows[0] == rows[1]
    assert displaced > 100
    assert list(queues[0]) == list(queues[1])


@pytest.mark.parametrize("names", [("s1",), NAMES])
@pytest.mark.parametrize("seed", range(10))
def test_g15_queues_that_lose_their_first_for_the_newest_have_added_and_dropped(
    seed: int, names: tuple[str, ...]
) -> None:
    """The blocks to store are the same, too, whenever they are stored in between."""
    draw = Random(seed)
    changes: list[dict[tuple[str, int], None]] = [{}, {}]
    ours, theirs = (SessionQueue(KEY, changed) for changed in changes)
    ours_rows: dict[int, object] = {}
    theirs_rows: dict[int, object] = {}
    displaced = 0
    for queue in (ours, theirs):  # the gaps of both subscriptions begin in different blocks
        for number in range(1, 80):
            queue.append(queued(number, ("s1",)))
        queue.drop("s1", 1, 79, REASONS[0])
    for number in range(80, 700):
        oldest = ours.queues["s1"].oldest() if ours.queues else None
        is_full = oldest is not None and ours.queues["s1"].waiting > 70
        quick = ours.displace(names, oldest.number, REASONS[0], queued(number, names)) if oldest and is_full else None
        theirs.append(queued(number, names))
        if quick is None:
            ours.append(queued(number, names))
        displaced += quick is not None
        if oldest and is_full:
            for name in names:
                if quick is None:
                    ours.drop(name, oldest.number, oldest.number, REASONS[0])
                released = theirs.drop(name, oldest.number, oldest.number, REASONS[0])[1]
            assert [each.number for each in released] == [oldest.number]
        assert items_of(ours) == items_of(theirs)
        for name in names:
            assert ours.queues[name].queued_bytes == theirs.queues[name].queued_bytes
        if draw.random() < 0.03:
            ours_rows |= rows_of(ours, changes[0])
            theirs_rows |= rows_of(theirs, changes[1])
            ours.saved()
            theirs.saved()
            changes[0].clear()
            changes[1].clear()
            assert ours_rows == theirs_rows
            assert {number: row for number, row in ours_rows.items() if row is not None} == {
                block: ours.block(block) for block in ours.blocks()
            }
    assert displaced > 500


def test_u02_a_gap_that_covers_every_number_needs_no_list_of_them() -> None:
    changed: dict[tuple[str, int], None] = {}
    queue = SessionQueue(KEY, changed)
    for number in range(1, 11):
        queue.append(queued(number, ("s1",)))
    queue.drop("s1", 1, 4, REASONS[0])
    (gap, *_) = queue.queues["s1"]
    assert isinstance(gap, QueuedGap)
    assert (gap.numbers, gap.count) == ({}, 4)
    behind = gap.beyond(3)
    assert (behind.number, behind.last, behind.lost) == (4, 4, {REASONS[0]: 1})
    queue.drop("s1", 5, 5, REASONS[1])
    (gap, *_) = queue.queues["s1"]
    assert isinstance(gap, QueuedGap)
    assert {reason: list(numbers) for reason, numbers in gap.numbers.items()} == {
        REASONS[0]: [1, 2, 3, 4],
        REASONS[1]: [5],
    }
    assert gap.beyond(3).lost == {REASONS[0]: 1, REASONS[1]: 1}
