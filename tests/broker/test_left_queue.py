"""Queues that leave in pieces: every piece in order is the whole queue, however it is cut (SPEC L-02)."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from wanderbus.broker.queues.left_queue import LeftQueue, cut
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Item, Queued, QueuedGap
from wanderbus.broker.queues.stored_queues import StoredEvents, StoredQueues
from wanderbus.broker.state.exported_session import decode_piece, encode_piece
from wanderbus.broker.state.rows import EventRow
from wanderbus.event import EventId

NAMES = ("a", "b", "c")
KEY = "sip:alice@example.org/default"


def stored(settled: dict[str, int]) -> StoredQueues:
    return StoredQueues(StoredEvents(), lambda name: settled.get(name, 0), lambda key: False)


def settle(queues: StoredQueues, released: list[Queued]) -> None:
    for entry in released:
        queues._events.release(entry.event)


def random_queue(draw: Random, queues: StoredQueues, settled: dict[str, int]) -> SessionQueue:
    """A queue of three subscriptions, with numbers and gaps at random, of which some was taken."""
    queue, number = queues.ensure(KEY), 0
    for _ in range(draw.choice([1, 30, 200])):
        number += draw.choice([1, 1, 1, 2, 70])
        event = EventRow(EventId("s1", 1, number), number, bytes(draw.choice([1, 20, 300])), 1)
        queues._events.add(event)
        queue.append(Queued(number, event, tuple(draw.sample(NAMES, draw.choice([1, 2, 3])))))
        if draw.random() < 0.2:
            last = draw.randint(1, number)
            first, reason = max(1, last - draw.choice([1, 10, 100])), draw.choice(["x", "y"])
            _, released = queue.drop(draw.choice(NAMES), first, last, reason)
            settle(queues, released)
    for name in NAMES:
        if draw.random() < 0.5:
            settled[name] = draw.randint(1, number)
            _, released = queue.take(name, settled[name])
            settle(queues, released)
    return queue


def content(queue: SessionQueue) -> dict[str, list[object]]:
    def shown(item: Item) -> object:
        if isinstance(item, QueuedGap):
            return item.number, item.last, item.lost, {reason: list(own) for reason, own in item.numbers.items()}
        return item.number, item.event.id, item.event.data, sorted(item.subscriptions), item.waiting

    return {name: [shown(item) for item in own] for name, own in sorted(queue.queues.items())}


@pytest.mark.parametrize("seed", range(60))
def test_l02_the_pieces_of_a_queue_are_the_queue(seed: int) -> None:
    draw = Random(seed)
    settled: dict[str, int] = {}
    source = stored(settled)
    before = content(random_queue(draw, source, settled))
    entries = {entry.number: entry.waiting for entry in source.ensure(KEY)}
    source.leave(KEY)
    target, after, added, pieces = stored(settled), 0, dict[int, int](), 0
    size = draw.choice([1, 200, 1_000])
    while (left := source.left(KEY)) is not None:
        piece = decode_piece(encode_piece(left.piece(after, size)))
        assert piece.after == after
        assert piece == decode_piece(encode_piece(left.piece(after, size))), "a repeated piece is the same"
        added |= {entry.number: entry.waiting for entry in target.take_over(KEY, piece)}
        after, pieces = piece.through, pieces + 1
        source.forget_left(KEY, None if piece.is_last else after)
        if draw.random() < 0.3:  # as after a restart
            rows = [(key, msgspec.msgpack.encode(block)) for key, block in source.items()]
            again = StoredQueues(source._events, lambda name: 0, lambda key: True)
            for row in source._events.rows.values():
                row.sessions = 0
            again.load(rows)
            source = again
    assert content(target.ensure(KEY)) == before
    assert added == entries, "what waits is counted as it was"
    assert not source._events.rows, "the events have left"
    assert {row.id for row in target._events.rows.values()} == {entry.event.id for entry in target.ensure(KEY)}
    assert pieces > 1 or len(entries) < 2 or size == 1_000


def test_a_piece_is_as_large_as_is_wanted_and_has_one_notification_at_least() -> None:
    queues = stored({})
    queue = queues.ensure(KEY)
    for number in range(1, 201):
        event = EventRow(EventId("s1", 1, number), number, bytes(100), 1)
        queue.append(Queued(number, event, ("a",)))
    first = cut(queue, queue.blocks(), 0, 10_000)
    assert (len(first.events), first.through, first.is_last) == (60, 60, False)
    second = cut(queue, queue.blocks(), 60, 1)
    assert (len(second.events), second.through, second.is_last) == (1, 61, False)
    assert cut(queue, queue.blocks(), 150, 10_000).is_last


def test_a_forgotten_notification_is_not_cut_again() -> None:
    queues = stored({})
    queue = queues.ensure(KEY)
    for number in range(1, 101):
        queue.append(Queued(number, EventRow(EventId("s1", 1, number), number, b"x", 1), ("a",)))
    left = LeftQueue(queue)
    assert [entry.number for entry in queue.forget(40)] == list(range(1, 41))
    assert left.piece(0, 10**6).events[0].id.number == 41
