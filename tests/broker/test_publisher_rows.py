"""Tests of what a server remembers of a publisher, by which it recognises repeats."""

from __future__ import annotations

from wanderbus.broker.state.rows import PublisherRow


def _remembering(*numbers: int, most: int = 10) -> PublisherRow:
    row = PublisherRow(1)
    for number in numbers:
        row.remember(number, 1_000 + number, number % 7, most)
    return row


def test_the_last_numbers_are_remembered_whether_or_not_there_are_gaps() -> None:
    for numbers in (range(1, 100), range(1, 400, 10), (1, 2, 3, 50, 51, 58, 59, 60, 61, 99, 100, 104)):
        row = _remembering(*numbers)
        last = row.number
        kept = [each for each in numbers if each > last - 10]
        assert (last, sorted(row.recent), sorted(row.digests)) == (max(numbers), kept, kept)


def test_the_last_numbers_of_two_servers_are_remembered() -> None:
    row = _remembering(2, 6, 8).merged(_remembering(1, 3, 9))
    row.remember(15, 1, 1, 10)
    assert (sorted(row.recent), sorted(row.digests)) == ([6, 8, 15], [6, 8, 9, 15])
