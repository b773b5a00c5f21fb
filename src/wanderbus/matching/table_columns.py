"""Columns of a table of events: all values of one attribute.

Values of one type are flat arrays; any others are a list of Python values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from wanderbus.matching.segment import Array

EXACT_MAX: Final = 2**53
"""Largest whole number up to which every one is a double; larger ones are not in :class:`Doubles`."""


class Texts(NamedTuple):
    """Strings: the distinct ones, and the place of each row's among them, or -1 if the row has none."""

    places: Array
    distinct: Sequence[str]


class Doubles(NamedTuple):
    """Values of one kind, each exactly a double: booleans, numbers, or dates in microseconds since the Unix epoch."""

    kind: int
    """One of the kinds of :mod:`wanderbus.matching.rows`."""
    values: Array
    is_missing: Array | None
    """For each row, whether it has no value; None if all have one."""


Column = Texts | Doubles | list[Any]
"""Values of an attribute; a list has :data:`wanderbus.matching.columns.ABSENT` where a row has none."""
