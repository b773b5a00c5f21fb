"""Random segments, rows and events in the kernels' layout; and a slow reference that reads them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from wanderbus.matching.layout import (
    BLOCK_ROWS,
    LISTS,
    LIVE,
    ON_LISTS,
    OPEN_HIGH,
    OPEN_LOW,
    OR_NEXT,
    OWNER,
    PLACE,
    ROW_PARTS,
    SLOT,
    START,
    STOP,
    SUBJECT,
    UNPLACED,
)
from wanderbus.matching.segment import PLAIN, RowSegment, Shape
from wanderbus.matching.segment_shape import shape_of

INF: Final = math.inf
GREATEST: Final = math.nextafter(INF, 0.0)
COLUMNS: Final = 8
VALUES: Final = (-INF, -GREATEST, -3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 7.0, 1e300, GREATEST, INF)

Fresh = tuple[Any, Any, Any]
"""Rows that are yet to be written, the columns of their entries, and the ends of these."""
Events = tuple[Any, ...]


def a_value(rng: random.Random) -> float:
    return rng.choice(VALUES) if rng.random() < 0.5 else float(rng.randint(0, 200))


def a_clause(rng: random.Random, several_columns: float = 0.2) -> list[tuple[int, float, float]]:
    column = rng.randint(1, COLUMNS - 1)
    entries = []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        low, high = sorted((a_value(rng), a_value(rng)))
        if rng.random() < 0.5:
            low, high = rng.choice(((low, low), (low, INF), (-INF, high), (high, low)))
        of_numbers = rng.choice((0, 0, OPEN_LOW, OPEN_HIGH, OPEN_LOW | OPEN_HIGH))
        entries.append((column | of_numbers, low, high))
        if rng.random() < several_columns:
            column = rng.randint(1, COLUMNS - 1)
    return entries


def a_row(slot: int, start: int, stop: int, subject: int = 0, owner: int | None = None) -> list[int]:
    """Return a row that is yet to be written, by default that of a filter with no other."""
    row = [0] * ROW_PARTS
    row[SLOT], row[START], row[STOP], row[SUBJECT], row[OWNER] = slot, start, stop, subject, slot
    if owner is not None:
        row[OWNER] = owner
    return row


def some_rows(
    rng: random.Random, count: int, first_slot: int = 0, clauses: Sequence[int] = (0, 1, 1, 2, 2, 3, 4)
) -> Fresh:
    """Return rows of any form: without clauses, with two about a column, and with clauses about several columns."""
    rows: list[list[int]] = []
    columns: list[int] = []
    ends: list[list[float]] = []
    for slot in range(first_slot, first_slot + count):
        begin = len(columns)
        for _ in range(rng.choice(clauses)):
            clause = a_clause(rng)
            columns += [column | OR_NEXT for column, _, _ in clause[:-1]] + [clause[-1][0]]
            ends += [[low, high] for _, low, high in clause]
        owner = slot // 3
        rows.append(a_row(slot, begin, len(columns), rng.randrange(3), rng.choice((owner, ~owner))))
    return (
        np.array(rows, np.int32).reshape(-1, ROW_PARTS),
        np.array(columns, np.int32),
        np.array(ends, np.float64).reshape(-1, 2),
    )


def filled(kernel: Any, fresh: Fresh, shape: Shape, blocks: int, per_block: int) -> RowSegment:
    """Return a segment of these rows in the order of their keys."""
    segment = RowSegment(shape, blocks, 2 * len(fresh[1]) + 100)
    for array in (segment.rows, segment.entry_columns, segment.ends):
        array[:] = 0
    numbers = np.arange(len(fresh[0]), dtype=np.int32)
    keys = kernel.keys_of(numbers, *fresh, shape.places, shape.worths, shape.line_starts, shape.cuts)
    order = np.argsort(keys, kind="stable")
    segment.keys[:] = keys[order[np.minimum(np.arange(blocks) * per_block, len(keys) - 1)]]
    for block in range(blocks):
        its = np.ascontiguousarray(fresh[0][order[block * per_block : (block + 1) * per_block]])
        kernel.fill(block, its, *fresh[1:], shape.places, *segment.tables, segment.sizes)
    return segment


def write(kernel: Any, segment: RowSegment, fresh: Fresh, reach: int, where: Any = None) -> tuple[int, Any]:
    """Write rows; return how many had no room, and the places of the others."""
    shape = segment.shape
    where = np.full(len(fresh[0]), UNPLACED, np.int32) if where is None else where.copy()
    left = kernel.write(
        reach, segment.keys, where, *fresh, shape.places, shape.worths, *segment.tables, segment.sizes
    )  # fmt: skip
    return left, where


def a_segment(rng: random.Random, kernel: Any) -> RowSegment:
    """Return a segment that was filled, and into which rows were written where others were removed."""
    count = rng.choice((3, 100, 1_500))
    fresh = some_rows(rng, count)
    per_block = rng.randint(count // 4 + 1, min(count, BLOCK_ROWS))
    shape = PLAIN if rng.random() < 0.1 else shape_of(*fresh)
    segment = filled(kernel, fresh, shape, -(-count // per_block), per_block)
    for turn in range(1, 4):
        for row in rng.sample(segment.live_rows().tolist(), len(segment) // 3):
            segment.remove(row)
        left, where = write(kernel, segment, some_rows(rng, count // 2, turn * 10_000), rng.choice((0, 1, 12)))
        assert left == (where == UNPLACED).sum()
    return segment


def some_events(rng: random.Random, count: int) -> Events:
    """Return events as the kernels have them, one in three with several values in some columns."""
    values = np.array(
        [[a_value(rng) if rng.random() < 0.8 else math.nan for _ in range(COLUMNS)] for _ in range(count)]
    )
    values[:, 0] = [rng.choice((-1.0, 0.0, 1.0, 2.0)) for _ in range(count)]
    flags = np.zeros(count, np.uint8)
    starts, columns, items = [0], [], []
    for event in range(count):
        if rng.random() < 1 / 3:
            flags[event] = LISTS
            several = []
            for _ in range(rng.choice((1, 3, 6, 40))):
                value = a_value(rng)
                above = value if rng.random() < 0.7 else math.nextafter(value, INF)
                several.append((rng.randint(1, COLUMNS - 1), value, above))
            columns += [column for column, _, _ in sorted(several)]
            items += [ends for _, *ends in sorted(several)]
        starts.append(len(columns))
    flat = np.array(items, np.float64).reshape(-1, 2)
    return values, flags, np.array(starts, np.int64), np.array(columns, np.int32), flat


def found(kernel: Any, segment: RowSegment, events: Events, traits: Any, room: int = 4 * BLOCK_ROWS) -> list[Any]:
    """Return all results of a kernel for a segment: lines, blocks, matches and the end of each event's matches."""
    values, flags = events[:2]
    counts = np.zeros(len(values), np.int32)
    lines = np.zeros((len(values), len(segment.shape.columns)), np.int32)
    blocks = np.empty((len(values), segment.summary.shape[1]), np.uint64)
    kernel.choose(*events, *segment.tables, lines, blocks)
    out = np.zeros((room, 2), np.int32)
    block = event = size = 0
    stops = []
    while block < len(segment.keys):
        found = segment.is_frozen, traits, out, counts, size
        block, event, size = kernel.match(block, event, values, *segment.tables, lines, blocks, *found)
        stops.append((block, event, size))
        out = np.concatenate([out, np.zeros((BLOCK_ROWS, 2), np.int32)])
    for event in np.flatnonzero(flags).tolist():
        out = np.concatenate([out, np.zeros((len(segment.rows), 2), np.int32)])
        size = kernel.match_lists(event, *events, *segment.tables, traits, out, counts, size)
    ends, slots = np.empty(len(values), np.int64), np.empty(size, np.int32)
    kernel.by_event(out, size, counts, ends, slots)
    lines[flags != 0] = lines[values[:, 0] < 0] = 0
    return [stops, lines, blocks, out[:size], counts, slots, ends]


# A slow reading ------------------------------------------------------------------------------------------------------


def entry_holds(segment: RowSegment, entry: int, event: int, events: Events) -> bool:
    values, _, starts, columns, items = events
    asked = int(segment.entry_columns[entry])
    low, high = segment.ends[entry].tolist()
    own = values[event, asked & PLACE]
    if low <= own <= high:
        return True
    its = items[starts[event] : starts[event + 1]][columns[starts[event] : starts[event + 1]] == asked & PLACE]
    lows = its[:, 1 if asked & OPEN_LOW else 0]
    highs = its[:, 0 if asked & OPEN_HIGH else 1]
    return bool(((low <= lows) & (highs <= high)).any())


def row_holds(segment: RowSegment, row: int, event: int, events: Events) -> bool:
    start, stop, subject = segment.rows[row][[START, STOP, SUBJECT]].tolist()
    if subject != events[0][event, 0]:
        return False
    some = False
    for entry in range(start, stop):
        some = some or entry_holds(segment, entry, event, events)
        if not segment.entry_columns[entry] & OR_NEXT:
            if not some:
                return False
            some = False
    return True


def wanted(segment: RowSegment, events: Events, traits: Any) -> list[list[int]]:
    """Return the owners of the rows that match each event, in order."""
    answers = []
    for event, flags in enumerate(events[1].tolist()):
        rows = [row for row in segment.live_rows().tolist() if row_holds(segment, row, event, events)]
        whose = []
        for slot, owner in segment.rows[rows][:, [SLOT, OWNER]].tolist():
            if traits[slot] & LIVE or not (flags or segment.is_frozen):
                whose.append(~owner if flags and traits[slot] & ON_LISTS and owner >= 0 else owner)
        answers.append(sorted(whose))
    return answers


def some_traits(rng: random.Random) -> Any:
    """Return traits for the maximum of slots; some are not live, as in a segment that is being rebuilt."""
    return np.resize(np.array([rng.choice((0, LIVE, LIVE, LIVE | ON_LISTS)) for _ in range(99)], np.uint8), 40_000)
