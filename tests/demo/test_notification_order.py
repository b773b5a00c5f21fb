"""Several streams, one order: results are committed by number whichever stream they come by."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from demo.notification_order import NotificationOrder


def pass_all(last: tuple[int, int] | None, streams: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Run one task per stream of (first, number) pairs of epoch 1; return the pairs that were fresh, in order."""
    passed: list[tuple[int, int]] = []

    async def read(turns: NotificationOrder, stream: list[tuple[int, int]]) -> None:
        for first, number in stream:
            async with turns.turn(1, first, number) as fresh:
                if fresh:
                    passed.append((first, number))

    async def run() -> None:
        turns = NotificationOrder(last)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            for stream in streams:
                group.create_task(read(turns, stream))

    asyncio.run(run())
    return passed


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.permutations(range(3)))
def test_numbers_pass_in_order_however_they_are_spread(owners: list[int], order: list[int]) -> None:
    streams = [[(n, n) for n, owner in enumerate(owners, 1) if owner == stream] for stream in order]
    assert pass_all((1, 0), streams) == [(n, n) for n in range(1, len(owners) + 1)]


def test_an_event_in_two_streams_counts_once() -> None:
    assert pass_all((1, 4), [[(5, 5), (6, 6)], [(5, 5), (7, 7)]]) == [(5, 5), (6, 6), (7, 7)]


def test_a_gap_takes_the_place_of_all_its_numbers() -> None:
    assert pass_all((1, 0), [[(1, 1), (6, 6)], [(2, 5)]]) == [(1, 1), (2, 5), (6, 6)]


def test_without_a_position_the_sequence_begins_at_one() -> None:
    assert pass_all(None, [[(2, 2), (4, 4)], [(1, 1), (3, 3)]]) == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_another_epoch_restarts_numbers() -> None:
    async def run() -> list[bool]:
        turns = NotificationOrder((3, 90))
        async with turns.turn(4, 1, 1) as first, asyncio.timeout(1):
            pass
        async with turns.turn(4, 2, 2) as second:
            return [first, second]

    assert asyncio.run(run()) == [True, True]
