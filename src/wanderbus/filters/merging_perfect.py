"""Perfect and imperfect merging of conjunctions of one structure (SPEC B-04 to B-07, B-09).

Perfect merging equals the union. It rests on ``(C and a) or (C and b) = C and (a or b)``: conjunctions that agree in
all attribute filters but one become one, until none do. Only for ``any`` is the disjunction one attribute filter that
holds for the same events. ``all (< 5 or > 5)`` holds for the list [1, 9], for which neither ``all < 5`` nor ``all > 5``
does; so of two ``all`` one covers the other, or both stay. Every round looks up, for each attribute, the rest of each
conjunction in a table: the work grows with the number of conjunctions and of merges, not with that of pairs.

What merges does not depend on the order in which the conjunctions come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Final

from wanderbus.filters.conjunctions import conjunction
from wanderbus.filters.merging_clauses import joined, order, widened
from wanderbus.filters.merging_covered import Row, uncovered
from wanderbus.filters.normal import AttributeFilter, Conjunction
from wanderbus.filters.weights import weight_of_filter
from wanderbus.work import UNCOUNTED, WorkBudget

Structure = tuple[tuple[tuple[str, str, tuple[str, ...]], ...], tuple[object, ...]]
"""Structure of a conjunction: those of its attribute filters, and its residuals (SPEC B-05)."""

_ROW: Final = 100
"""Units of one attribute filter of one row."""

_PART: Final = 100
"""Units of each part of an attribute filter that is compared to be sorted."""


def structure_of(conjunction: Conjunction) -> Structure:
    """Return the structure, which is equal for conjunctions that merge."""
    return tuple([each.structure for each in conjunction.filters]), conjunction.residuals


def perfect(conjunctions: Collection[Conjunction], work: WorkBudget = UNCOUNTED) -> list[Conjunction]:
    """Return at most as many conjunctions that hold exactly where one of ``conjunctions``, of one structure, does."""
    if len(conjunctions) < 2:
        return list(conjunctions)
    group = Group(conjunctions, work)
    return group.conjunctions(group.perfect(group.rows))


def imperfect(conjunctions: Collection[Conjunction], work: WorkBudget = UNCOUNTED) -> list[Conjunction]:
    """Return one conjunction that holds wherever one of ``conjunctions``, of one structure, does, or more."""
    if len(conjunctions) < 2:
        return list(conjunctions)
    group = Group(conjunctions, work)
    return group.conjunctions([group.fused(group.rows)])


def distinct_uncovered(conjunctions: Collection[Conjunction], work: WorkBudget = UNCOUNTED) -> list[Conjunction]:
    """Return those of ``conjunctions``, of one structure, that no other of them covers."""
    if len(conjunctions) < 2:
        return list(conjunctions)
    group = Group(conjunctions, work)
    return group.conjunctions(uncovered(group.rows, group.table, work))


class Group:
    """Conjunctions of one structure as rows of numbers: indices of their attribute filters in a table.

    Its functions raise :class:`WorkExceeded` beyond the units of ``work``.
    """

    def __init__(self, conjunctions: Iterable[Conjunction], work: WorkBudget = UNCOUNTED) -> None:
        distinct = list(dict.fromkeys(conjunctions))
        self._work = work
        work.spend(_ROW * len(distinct) * (1 + len(distinct[0].filters)))
        self.residuals = distinct[0].residuals
        self._slots = _slots_of(distinct[0].filters)
        self._names_once = len({each.attribute for each in distinct[0].filters}) == len(distinct[0].filters)
        # Numbered in a canonical order, so that the result does not depend on the order of the input.
        self.table: list[AttributeFilter] = []
        self._numbers: dict[AttributeFilter, int] = {}
        for _, places in self._slots:
            found = {one.filters[place] for one in distinct for place in places}
            work.spend(_PART * sum(map(weight_of_filter, found)))
            for each in sorted(found, key=order):
                self._number(each)
        numbers = self._numbers
        self.rows = sorted({self._arranged([numbers[each] for each in one.filters]) for one in distinct})

    def perfect(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows that hold exactly where one of ``rows`` does: none covers another, no two merge."""
        kept = uncovered(rows, self.table, self._work)
        merged = self._merged(kept)
        return kept if len(merged) == len(kept) else uncovered(merged, self.table, self._work)

    def fused(self, rows: Sequence[Row]) -> Row:
        """Return one row that holds where one of ``rows`` does, and perhaps elsewhere."""
        if len(rows) == 1:
            return rows[0]
        return self._arranged(
            [
                self._number(widened((self.table[each] for each in column), self._work))
                for column in zip(*rows, strict=True)
            ]
        )

    def conjunctions(self, rows: Iterable[Row]) -> list[Conjunction]:
        """Return ``rows`` as conjunctions, without filters that the others imply."""
        if self._names_once:
            return [Conjunction(tuple([self.table[each] for each in row]), self.residuals) for row in rows]
        found = (conjunction([self.table[each] for each in row], self.residuals, self._work) for row in rows)
        return [each for each in found if each is not None]

    def _merged(self, rows: Sequence[Row]) -> list[Row]:
        """Return ``rows`` merged until no two agree in all but one place of a slot for ``any``."""
        slots = [places for quantifier, places in self._slots if quantifier == "any"]
        alive = dict.fromkeys(rows)
        known: list[dict[Row, tuple[Row, int]]] = [{} for _ in slots]
        fresh = list(rows)
        while fresh:
            made: dict[Row, None] = {}
            for places, partners in zip(slots, known, strict=True):
                for row in self._merged_at(places, [*fresh, *made], alive, partners):
                    made[row] = None
            fresh = [row for row in made if row in alive]
        return list(alive)

    def _merged_at(
        self, places: Sequence[int], rows: Iterable[Row], alive: dict[Row, None], partners: dict[Row, tuple[Row, int]]
    ) -> list[Row]:
        """Merge each of ``rows`` with a row that agrees outside one of ``places``; update ``alive``, return new rows.

        ``partners`` maps the rest of a row to the row last seen with it, and to that row's remaining filter.
        """
        alike: dict[Row, dict[Row, int]] = {}
        for row in rows:
            self._work.spend(_ROW)
            if row in alive:
                for place in places:
                    alike.setdefault(_without(row, place, places), {})[row] = row[place]
        made: list[Row] = []
        last = places[-1]
        for rest, found in alike.items():
            partner = partners.get(rest)
            if partner is not None:
                found[partner[0]] = partner[1]
            if len(found) > 1:
                found = {row: number for row, number in found.items() if row in alive}
            for pair in found.items():
                partners[rest] = pair
            if len(found) < 2 or len(parts := self._joined(found.values())) == len(found):
                continue
            for row in found:
                del alive[row]
            for part in parts:
                row = self._arranged([*rest[:last], part, *rest[last:]])
                partners[rest] = row, part
                alive[row] = None
                made.append(row)
        return made

    def _joined(self, numbers: Iterable[int]) -> list[int]:
        return [self._number(each) for each in joined((self.table[number] for number in numbers), self._work)]

    def _number(self, each: AttributeFilter) -> int:
        number = self._numbers.setdefault(each, len(self.table))
        if number == len(self.table):
            self.table.append(each)
        return number

    def _arranged(self, row: list[int]) -> Row:
        """Return ``row`` with the places of each structure that is repeated in order."""
        for _, places in self._slots:
            if len(places) > 1:
                for place, number in zip(places, sorted(row[place] for place in places), strict=True):
                    row[place] = number
        return tuple(row)


def _slots_of(filters: Sequence[AttributeFilter]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the quantifier and the places of each structure of an attribute filter; repeated ones have several."""
    slots: dict[object, tuple[str, tuple[int, ...]]] = {}
    for place, each in enumerate(filters):
        _, places = slots.get(each.structure, ("", ()))
        slots[each.structure] = each.quantifier, (*places, place)
    return list(slots.values())


def _without(row: Row, place: int, places: Sequence[int]) -> Row:
    """Return ``row`` without the entry at ``place``, one of ``places``; later places move up."""
    if place == places[-1]:
        return row[:place] + row[place + 1 :]
    moved = list(row)
    at = places.index(place)
    for target, source in pairwise(places[at:]):
        moved[target] = row[source]
    return (*moved[: places[-1]], *moved[places[-1] + 1 :])
