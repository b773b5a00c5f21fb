"""The bound on the work of filters, for rows of past events: what the broker leaves undecided, so does history.

Work is counted as in the broker (:mod:`wanderbus.filters.work`), for the pairs of a filter and an event that the index
cannot decide. Filters that stay below the bound for every event that a broker accepts are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wanderbus.filters import Filter
from wanderbus.filters.compiled import Test
from wanderbus.filters.work import Sizes, most_units, work_of
from wanderbus.filters.work_counts import Work


def works_beyond(filters: Sequence[Filter], work_max: int) -> dict[int, Work]:
    """Return the work of those filters that can exceed ``work_max`` for some event, by their places."""
    works = {place: work_of(each.root) for place, each in enumerate(filters)}
    return {place: work for place, work in works.items() if most_units(work) > work_max}


class RowBound:
    """Evaluates filters for the rows of a table, and notes the pairs that it leaves ``undecided``, as no matches."""

    def __init__(self, works: Mapping[int, Work], work_max: int) -> None:
        self._works = works
        self._work_max = work_max
        self._row = -1
        self._sizes = Sizes({})
        self.undecided: list[tuple[int, int]] = []
        """Rows with the places of the filters."""

    def holds(self, id: str, test: Test, row: int, attributes: Mapping[str, Any]) -> bool:
        """Return whether the filter with the place ``id`` is decided and true."""
        work = self._works.get(int(id))
        if work is not None:
            if row != self._row:
                self._row, self._sizes = row, Sizes(attributes)
            if work.units(self._sizes) > self._work_max:
                self.undecided.append((row, int(id)))
                return False
        return test(attributes) is True
