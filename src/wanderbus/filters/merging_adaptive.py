"""Adaptive merging, between perfect and imperfect: as few conjunctions as a bound on precision allows (SPEC S-04).

What is left of one structure after perfect merging is fused in pairs, those first that let the least through that none
of the originals asks for, while the precision as estimated stays at or above the bound. The estimate is one of two:

* *By counting*, where a sample of events is given: of those that what is left lets through, the share that the
  originals of that structure ask for. The bound holds exactly for the sample, so a sample that no filter matches says
  nothing and allows everything.
* *By volume*, where there is none, under an assumption: the value of one attribute says nothing of another's, and is as
  likely to be in one cell as in any other, where the cells are the ends that the filters name and what lies between
  two neighbouring ones. A suffix or a contained text counts as a cell of its own. The bound holds so for each merged
  conjunction alone; where several of them let the same asked-for events through but different unasked ones, the whole
  may be less precise than each.

Not every pair is looked at where there are many conjunctions, but each with its neighbours in the order of every
attribute, so the work stays near-linear.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, count
from typing import Any, Final, Protocol

from wanderbus.event import Event
from wanderbus.filters import clauses
from wanderbus.filters.evaluate import holds
from wanderbus.filters.merging_clauses import laid_out
from wanderbus.filters.merging_covered import Row
from wanderbus.filters.merging_perfect import Group, imperfect
from wanderbus.filters.normal import AttributeFilter, Conjunction, Term
from wanderbus.work import UNCOUNTED, WorkBudget

NEIGHBOURS: Final = 6
"""Neighbours on each side, in the order of each attribute."""

PARTNERS_MAX: Final = 32
"""Number of pairs in which a fused row is tried again."""

CELLS_MAX: Final = 4_096
"""Largest number of cells of one attribute; if filters name more ends, neighbouring cells are joined."""

_PAIR: Final = 150
"""Units of the estimate of a pair, and of each of its attributes."""

Masks = tuple[int, ...]
"""For each attribute, the cells or the sampled events that fit, as bits."""


def adaptive(
    conjunctions: Collection[Conjunction],
    precision_min: float,
    sample: Sequence[Event] = (),
    work: WorkBudget = UNCOUNTED,
) -> list[Conjunction]:
    """Return few conjunctions that hold where one of ``conjunctions``, of one structure, does.

    A ``precision_min`` of 1 is perfect merging, and one of 0 imperfect merging.
    """
    if precision_min <= 0.0 or len(conjunctions) < 2:
        return imperfect(conjunctions, work)
    group = Group(conjunctions, work)
    rows = group.perfect(group.rows)
    if precision_min < 1.0 and len(rows) > 1:
        estimate = _Counting(group, rows, precision_min, sample) if sample else _Volumes(group, rows, precision_min)
        rows = group.perfect(sorted({group.fused(parts) for parts in _Fusing(rows, estimate, work).parts()}))
    return group.conjunctions(rows)


class _Estimate(Protocol):
    def masks(self, row: Row) -> Masks:
        """Return the masks of the attribute filters of ``row``."""

    def size(self, masks: Masks) -> float:
        """Return the volume, or the number of events, that fits all attribute filters."""

    def accept(self, masks: Masks, unasked: float) -> bool:
        """Return whether the bound allows a conjunction with at most ``unasked`` unwanted events."""


class _Volumes:
    """Shares of cells."""

    def __init__(self, group: Group, rows: Sequence[Row], precision_min: float) -> None:
        self._unasked_max = 1.0 - precision_min
        self._columns: list[dict[int, int]] = []
        self._cells: list[int] = []
        for ids in zip(*rows, strict=True):
            distinct = list(dict.fromkeys(ids))
            masks, cells = _cell_masks([group.table[each] for each in distinct])
            self._columns.append(dict(zip(distinct, masks, strict=True)))
            self._cells.append(cells)

    def masks(self, row: Row) -> Masks:
        return tuple([column[each] for column, each in zip(self._columns, row, strict=True)])

    def size(self, masks: Masks) -> float:
        return math.prod([mask.bit_count() / cells for mask, cells in zip(masks, self._cells, strict=True) if cells])

    def accept(self, masks: Masks, unasked: float) -> bool:
        return unasked <= self._unasked_max * self.size(masks)


class _Counting:
    """Events of a sample.

    The mask of an attribute filter has a bit for each event. An ``all`` joined with another lets through lists that
    neither lets through alone, so for ``all`` the items of longer lists have bits of their own, after those of the
    events.
    """

    def __init__(self, group: Group, rows: Sequence[Row], precision_min: float, sample: Sequence[Event]) -> None:
        self._group = group
        self._precision_min = precision_min
        self._events = [
            event.attributes
            for event in sample
            if all(holds(residual, event.attributes) is True for residual in group.residuals)
        ]
        self._everyone = (1 << len(self._events)) - 1
        self._known: dict[int, int] = {}
        self._lists = [self._lists_of(group.table[each]) for each in rows[0]]
        self._asked = 0
        for row in rows:
            self._asked |= self._through(self.masks(row))
        self._let_through = self._asked

    def masks(self, row: Row) -> Masks:
        for each, lists in zip(row, self._lists, strict=True):
            if each not in self._known:
                self._known[each] = self._mask(self._group.table[each], lists)
        return tuple([self._known[each] for each in row])

    def size(self, masks: Masks) -> float:
        return self._through(masks).bit_count()

    def accept(self, masks: Masks, unasked: float) -> bool:
        let_through = self._let_through | self._through(masks)
        if self._asked.bit_count() < self._precision_min * let_through.bit_count():
            return False
        self._let_through = let_through
        return True

    def _through(self, masks: Masks) -> int:
        """Return the events that fit all attribute filters, as bits."""
        through = self._everyone
        for mask, lists in zip(masks, self._lists, strict=True):
            for event, items in lists.items():
                if not items & ~mask:
                    mask |= 1 << event
            through &= mask
        return through

    def _lists_of(self, each: AttributeFilter) -> dict[int, int]:
        """Return for each event, by number, the bits of the items of its list of two or more; only for ``all``."""
        lists: dict[int, int] = {}
        bit = len(self._events)
        for number, attributes in enumerate(self._events if each.quantifier == "all" else ()):
            count = len(_items(attributes.get(each.attribute)))
            if count > 1:
                lists[number] = ((1 << count) - 1) << bit
                bit += count
        return lists

    def _mask(self, each: AttributeFilter, lists: Mapping[int, int]) -> int:
        mask = 0
        for number, attributes in enumerate(self._events):
            items = _items(attributes.get(each.attribute))
            if (each.attribute in attributes) == (each.quantifier == "absent"):
                continue
            if number in lists:
                first = (lists[number] & -lists[number]).bit_length() - 1
                for place, item in enumerate(items):
                    mask |= clauses.holds(each.terms, item) << first + place
            elif each.quantifier == "any":
                mask |= any(clauses.holds(each.terms, item) for item in items) << number
            else:
                mask |= all(clauses.holds(each.terms, item) for item in items if each.quantifier == "all") << number
        return mask


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _cell_masks(filters: Sequence[AttributeFilter]) -> tuple[list[int], int]:
    """Return the cells of each of ``filters`` as bits, and how many cells there are."""
    spans, cells = laid_out(filters)
    as_one = cells // CELLS_MAX + 1
    cells = -(-cells // as_one)
    masks: list[int] = []
    own: dict[Term, int] = {}
    for each, span in zip(filters, spans, strict=True):
        mask = 0
        for low, past in span.runs:
            mask |= (1 << -(-past // as_one)) - (1 << low // as_one)
        for term in each.terms:
            if term.patterns:
                mask |= 1 << cells + own.setdefault(term, len(own))
        masks.append(mask)
    return masks, cells + len(own)


class _Fused:
    """The result of fusing some rows."""

    __slots__ = ("masks", "near", "rows", "size", "unasked")

    def __init__(self, rows: tuple[Row, ...], masks: Masks, size: float, unasked: float, near: set[int]) -> None:
        self.rows = rows
        self.masks = masks
        self.size = size
        self.unasked = unasked
        self.near = near


class _Fusing:
    """Pairs fused one after the other, cheapest first."""

    def __init__(self, rows: Sequence[Row], estimate: _Estimate, work: WorkBudget) -> None:
        self._estimate = estimate
        self._work = work
        self._alive: dict[int, _Fused] = {}
        self._ahead: list[tuple[float, int, int]] = []
        self._numbers = count(len(rows))
        for number, row in enumerate(rows):
            masks = estimate.masks(row)
            self._alive[number] = _Fused((row,), masks, estimate.size(masks), 0.0, set())
        for one, other in _neighbours([each.masks for each in self._alive.values()]):
            self._alive[one].near.add(other)
            self._alive[other].near.add(one)
            self._ahead.append((self._unasked(self._alive[one], self._alive[other]), one, other))
        heapq.heapify(self._ahead)

    def parts(self) -> list[tuple[Row, ...]]:
        """Fuse while the bound allows; return the source rows of each result."""
        while self._ahead:
            unasked, one, other = heapq.heappop(self._ahead)
            if one in self._alive and other in self._alive:
                self._fuse(one, other, unasked)
        return [each.rows for each in self._alive.values()]

    def _fuse(self, one: int, other: int, unasked: float) -> None:
        mine, its = self._alive[one], self._alive[other]
        masks = _united(mine.masks, its.masks)
        unasked += mine.unasked + its.unasked
        if not self._estimate.accept(masks, unasked):
            return
        del self._alive[one], self._alive[other]
        # A number is used once, so pairs of the two that are still in the queue are skipped.
        number = next(self._numbers)
        near = [each for each in sorted(mine.near | its.near) if each in self._alive]
        fused = _Fused((*mine.rows, *its.rows), masks, self._estimate.size(masks), unasked, set())
        pairs = sorted((self._unasked(fused, self._alive[each]), each) for each in near)[:PARTNERS_MAX]
        for cost, each in pairs:
            fused.near.add(each)
            self._alive[each].near.add(number)
            heapq.heappush(self._ahead, (cost, each, number))
        self._alive[number] = fused

    def _unasked(self, one: _Fused, other: _Fused) -> float:
        """Return how much the fused two let through beyond what each of them does."""
        self._work.spend(_PAIR * (1 + len(one.masks)))
        fused = self._estimate.size(_united(one.masks, other.masks))
        both = self._estimate.size(tuple([mine & its for mine, its in zip(one.masks, other.masks, strict=True)]))
        return max(0.0, fused - one.size - other.size + both)


def _united(one: Masks, other: Masks) -> Masks:
    return tuple([mine | its for mine, its in zip(one, other, strict=True)])


def _neighbours(masks: Sequence[Masks]) -> Iterator[tuple[int, int]]:
    """Yield pairs of numbers of ``masks``, the lower first: all of few, otherwise neighbours in some attribute."""
    if len(masks) <= 4 * NEIGHBOURS:
        yield from combinations(range(len(masks)), 2)
        return
    pairs: dict[tuple[int, int], None] = {}
    for place in range(len(masks[0])):

        def begin_and_end(number: int, place: int = place) -> tuple[int, int]:
            mask = masks[number][place]
            return (mask & -mask).bit_length(), mask.bit_length()

        ordered = sorted(range(len(masks)), key=begin_and_end)
        for step in range(1, NEIGHBOURS + 1):
            for one, other in zip(ordered, ordered[step:], strict=False):
                pairs[min(one, other), max(one, other)] = None
    yield from pairs
