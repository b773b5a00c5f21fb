"""Evaluation of several filters for an event within counted work (SPEC U-02)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wanderbus.filters import Filter
from wanderbus.filters.compiled import compile_node
from wanderbus.filters.work import Sizes, work_of


class BoundedFilters:
    """Filters that somebody else chose, of which an event has to match one."""

    def __init__(self, filters: Iterable[Filter], work_max: int) -> None:
        """Create it; all filters together do at most ``work_max`` units of work for an event."""
        self._tests = [(work_of(each.root), compile_node(each.root)) for each in filters]
        self._work_max = work_max

    def may_match(self, attributes: Mapping[str, Any]) -> bool:
        """Return whether some filter matches, or the first ones without a match leave too little work for the next."""
        sizes, left = Sizes(attributes), self._work_max
        for work, test in self._tests:
            left -= work.units(sizes)
            if left < 0 or test(attributes) is True:
                return True
        return False
