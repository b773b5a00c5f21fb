"""Filter of a subscription with its cost (SPEC A-11)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from wanderbus import filters
from wanderbus.filters.sizes import size_of
from wanderbus.filters.work import work_of
from wanderbus.filters.work_counts import Work

REMEMBERED_MAX: Final = 1_024
REMEMBERED_CHARACTERS_MAX: Final = 1_024
"""Number and length of the expressions that are remembered: a session that moves has each one read several times."""


class MeasuredFilter(NamedTuple):
    """A filter, the estimated bytes of its memory, and its work."""

    filter: filters.Filter
    bytes: int
    work: Work


def measured(interest: filters.Filter) -> MeasuredFilter:
    """Return the filter with its cost; measuring takes nearly as long as parsing."""
    return MeasuredFilter(interest, size_of(interest), work_of(interest.root))


def read_filter(expression: str, language: str) -> MeasuredFilter:
    """Return the filter for ``expression`` with its cost; :class:`wanderbus.errors.FilterError`."""
    return (_remembered if len(expression) <= REMEMBERED_CHARACTERS_MAX else _read)(expression, language)


def _read(expression: str, language: str) -> MeasuredFilter:
    return measured(filters.parse(expression, language))


_remembered = lru_cache(REMEMBERED_MAX)(_read)
