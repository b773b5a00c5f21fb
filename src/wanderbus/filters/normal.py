"""What covering and merging compare: filters as a set of conjunctions of attribute filters (DESIGN 7.2, SPEC A-14).

A :class:`Conjunction` is the set of ``<name, type, clause>`` of the paper. A clause is a disjunction of
:class:`Term`; a term says of one value that it is of a kind, lies in a region, and fits every pattern. The form says
when a filter is *true*; that something is unknown is no match, so it is no part of it.

Equal structs mean equal sets of values: intervals of a region are sorted, disjoint and apart, terms are sorted, at
most one of a kind has no patterns. Data alone; made by :mod:`wanderbus.filters.normalising`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from wanderbus.filters.ast import Node

Kind = Literal["boolean", "date", "number", "string"]
"""Values compare within their kind (:mod:`wanderbus.filters.evaluate`)."""

End = int | float | str | bool | datetime | None
"""Where an interval ends; None where it does not."""


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """The values of one kind between ``low`` and ``high``, with those two unless they are ``open`` or None.

    A single value is ``[v, v]``. The strings with a prefix are one interval too.
    """

    low: End
    high: End
    low_open: bool = False
    high_open: bool = False


class Pattern(msgspec.Struct, frozen=True, array_like=True, order=True):
    """That a string has a suffix or contains a text, or that it does not (``wanted`` is False)."""

    operator: Literal["suffix", "contains"]
    text: str
    wanted: bool = True


class Term(msgspec.Struct, frozen=True, array_like=True):
    """A value of ``kind`` within some interval of ``region``, which fits every one of ``patterns``."""

    kind: Kind
    region: tuple[Interval, ...]
    patterns: tuple[Pattern, ...] = ()


class AttributeFilter(msgspec.Struct, frozen=True, array_like=True):
    """That for ``any`` or ``all`` items of ``attribute`` some of ``terms`` holds, or that it ``exists`` or not.

    Without terms, ``any`` holds for nothing and ``all`` for the empty list alone; ``exists`` and ``absent`` have none.
    """

    attribute: str
    quantifier: Literal["any", "all", "exists", "absent"]
    terms: tuple[Term, ...] = ()

    @property
    def structure(self) -> tuple[str, str, tuple[str, ...]]:
        """Return the name, the quantifier and the kinds: of filters that merge, these are the same (SPEC B-05)."""
        return self.attribute, self.quantifier, tuple(sorted({term.kind for term in self.terms}))


class Conjunction(msgspec.Struct, frozen=True, array_like=True):
    """That every one of ``filters``, sorted, and every one of ``residuals`` holds.

    Residuals are what does not fit, and what would have made the form too large: evaluated, never looked into.
    """

    filters: tuple[AttributeFilter, ...] = ()
    residuals: tuple[Node, ...] = ()


NormalForm = tuple[Conjunction, ...]
"""Some conjunction of which holds; none of an empty one."""
