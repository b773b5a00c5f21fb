"""Filter of a subscription with its cost (SPEC A-11)."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus import filters
from wanderbus.filters.sizes import size_of
from wanderbus.filters.work import work_of
from wanderbus.filters.work_counts import Work


class MeasuredFilter(NamedTuple):
    """A filter, the estimated bytes of its memory, and its work."""

    filter: filters.Filter
    bytes: int
    work: Work


def measured(interest: filters.Filter) -> MeasuredFilter:
    """Return the filter with its cost; measuring takes nearly as long as parsing."""
    return MeasuredFilter(interest, size_of(interest), work_of(interest.root))
