"""Covered conjunctions of one structure, found without comparing all pairs (SPEC B-02, B-04, B-09).

A region that covers another has the first and the last cell of that one. For every attribute, and every cell where
something begins or ends, the conjunctions that have the cell are the bits of one number. Candidates that may cover a
conjunction are then one `and` of two such numbers for each of its attributes. This is exact for regions without gaps
and patterns; other regions are then compared in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wanderbus.filters import clauses
from wanderbus.filters.merging_clauses import laid_out
from wanderbus.filters.normal import AttributeFilter
from wanderbus.work import UNCOUNTED, WorkBudget

BLOCK: Final = 4_096
"""Size of a block: its conjunctions are compared with one another, and with as many of the largest.

In a structure of more than twice this number, a covered conjunction may remain; that is the only consequence.
"""

TRIES_MAX: Final = 64
"""Largest number of full comparisons for one conjunction; after so many failures, it stays."""

Row = tuple[int, ...]
"""A conjunction as the numbers of its attribute filters in a table."""


_CELL: Final = 100
"""Units of the comparison of one attribute of one conjunction."""


def uncovered(rows: Sequence[Row], table: Sequence[AttributeFilter], work: WorkBudget = UNCOUNTED) -> list[Row]:
    """Return those of ``rows``, all of one structure and distinct, that no other of them covers.

    Of two that cover each other the first stays. The time is near-linear in the rows. Raises :class:`WorkExceeded`
    beyond the units of ``work``.
    """
    if len(rows) < 2:
        return list(rows)
    if len(rows) <= 2 * BLOCK:
        return _alive(rows, table, work)
    return _in_blocks(rows, table, work)


def _in_blocks(rows: Sequence[Row], table: Sequence[AttributeFilter], work: WorkBudget) -> list[Row]:
    """Compare each of ``rows`` with its block and with the largest, which come first."""
    sizes = [1.0] * len(rows)
    pieces: dict[int, int] = {}
    for place in range(len(rows[0])):
        widths, parts = _along(sorted({row[place] for row in rows}), table)
        if len(set(parts.values())) > max(1, len(set(pieces.values()))):
            pieces, divided = parts, place
        sizes = [size * widths[row[place]] for size, row in zip(sizes, rows, strict=True)]
    if pieces:
        # A row and what covers it lie in the same piece of every attribute.
        groups: dict[int, list[Row]] = {}
        for row in rows:
            groups.setdefault(pieces[row[divided]], []).append(row)
        return [row for group in groups.values() for row in uncovered(group, table, work)]
    ordered = [rows[number] for number in sorted(range(len(rows)), key=lambda number: -sizes[number])]
    kept: list[Row] = []
    for start in range(0, len(ordered), BLOCK):
        kept = [*_alive([*kept[:BLOCK], *ordered[start : start + BLOCK]], table, work), *kept[BLOCK:]]
    return kept


def _along(ids: Sequence[int], table: Sequence[AttributeFilter]) -> tuple[dict[int, float], dict[int, int]]:
    """Return for each attribute filter its width, and the number of the piece of the line in which it lies.

    A covering filter is at least as wide. No attribute filter reaches from one piece into another.
    """
    spans, cells = laid_out([table[each] for each in ids])
    widths = {each: (span.past - span.first) / (cells or 1) for each, span in zip(ids, spans, strict=True)}
    pieces: dict[int, int] = {}
    piece = reached = 0
    for span, each in sorted(zip(spans, ids, strict=True), key=lambda pair: (pair[0].first, pair[0].past)):
        piece += span.first >= reached
        reached = max(reached, span.past)
        pieces[each] = piece
    return widths, pieces


def _alive(rows: Sequence[Row], table: Sequence[AttributeFilter], work: WorkBudget) -> list[Row]:
    """Return the rows that no other row covers, after comparing each with every other."""
    work.spend(_CELL * len(rows) * (1 + len(rows[0])))
    everyone = (1 << len(rows)) - 1
    columns = [_Column(ids, table, everyone, work) for ids in zip(*rows, strict=True)]
    alive = everyone
    # From the end, so that of two that cover each other the first stays.
    for number in range(len(rows) - 1, -1, -1):
        row = rows[number]
        candidates = alive & ~(1 << number)
        for column, its in zip(columns, row, strict=True):
            candidates &= column.perhaps[its]
        for other in _bits(candidates, TRIES_MAX):
            work.spend(_CELL)
            if all(column.covers(mine, its) for column, mine, its in zip(columns, rows[other], row, strict=True)):
                alive ^= 1 << number
                break
    return [row for number, row in enumerate(rows) if alive >> number & 1]


def _bits(number: int, most: int) -> Iterator[int]:
    """Yield the positions of the lowest bits of ``number``, at most ``most``."""
    while number and most:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
        most -= 1


class _Column:
    """One attribute of all rows that are compared."""

    def __init__(self, ids: Sequence[int], table: Sequence[AttributeFilter], everyone: int, work: WorkBudget) -> None:
        self._table = table
        self._work = work
        holders: dict[int, int] = {}
        for number, each in enumerate(ids):
            holders[each] = holders.get(each, 0) | 1 << number
        self.perhaps = dict.fromkeys(holders, everyone)
        """For each attribute filter, the rows, as bits, whose filter may cover it."""
        if len(holders) > 1:
            self._compare(holders)

    def _compare(self, holders: Mapping[int, int]) -> None:
        spans, _ = laid_out([self._table[each] for each in holders])
        self._spans = dict(zip(holders, spans, strict=True))
        changes: dict[int, int] = {}
        fitting = 0
        for span, rows in zip(spans, holders.values(), strict=True):
            if span.has_patterns:
                # Cells alone do not show what it covers.
                fitting |= rows
                continue
            for low, past in span.runs:
                changes[low] = changes.get(low, 0) ^ rows
                changes[past] = changes.get(past, 0) ^ rows
        before, after, holding = {}, {}, 0
        for cell in sorted(changes):
            before[cell] = holding
            after[cell] = holding = holding ^ changes[cell]
        for each, span in self._spans.items():
            if span.runs and not span.has_patterns:
                self.perhaps[each] = after[span.first] & before[span.past] | fitting

    def covers(self, one: int, other: int) -> bool:
        """Return whether attribute filter ``one``, a candidate, really covers ``other``."""
        if one == other:
            return True
        mine, its = self._spans[one], self._spans[other]
        if mine.has_patterns or its.has_patterns:
            return clauses.covers(self._table[one].terms, self._table[other].terms, self._work)
        return len(mine.runs) < 2 or not its.mask & ~mine.mask
