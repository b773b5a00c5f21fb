"""Normal form of filters: a set of conjunctions of attribute filters (DESIGN 7.2, SPEC A-14).

Covering and merging compare normal forms. A :class:`Conjunction` is the set of ``<name, type, clause>`` of the paper. A
clause is a disjunction of :class:`Term`; a term requires that a value is of a kind, lies in a region, and fits every
pattern. The form describes when a filter is *true*; unknown is no match, so the form omits it.

Equal structs mean equal sets of values: intervals of a region are sorted, disjoint and not adjacent; terms are sorted,
and at most one of a kind has no patterns. The module has data only; :mod:`wanderbus.filters.normalising` makes it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from wanderbus.filters.ast import Node

Kind = Literal["boolean", "date", "number", "string"]
"""Values compare within their kind (:mod:`wanderbus.filters.evaluate`)."""

End = int | float | str | bool | datetime | None
"""End of an interval; None if it is unbounded."""


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """The values of one kind between ``low`` and ``high``, including these two unless they are ``open`` or None.

    A single value is ``[v, v]``. The strings with a prefix are one interval too.
    """

    low: End
    high: End
    low_open: bool = False
    high_open: bool = False


class TextPattern(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Requirement that a string has a suffix or contains a text, or that it does not (``wanted`` is False)."""

    operator: Literal["suffix", "contains"]
    text: str
    wanted: bool = True


class Term(msgspec.Struct, frozen=True, array_like=True):
    """A value of ``kind`` within some interval of ``region`` that fits every one of ``patterns``."""

    kind: Kind
    region: tuple[Interval, ...]
    patterns: tuple[TextPattern, ...] = ()


class AttributeFilter(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """Requirement that some of ``terms`` holds for ``any`` or ``all`` items of ``attribute``, or that it ``exists`` or
    not.

    Without terms, ``any`` holds for nothing and ``all`` only for the empty list; ``exists`` and ``absent`` have none.
    """

    attribute: str
    quantifier: Literal["any", "all", "exists", "absent"]
    terms: tuple[Term, ...] = ()

    @property
    def structure(self) -> tuple[str, str, tuple[str, ...]]:
        """Return the name, the quantifier and the kinds: filters that merge have the same (SPEC B-05)."""
        return self.attribute, self.quantifier, tuple(sorted({term.kind for term in self.terms}))


class Conjunction(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """Requirement that every one of ``filters``, sorted, and every one of ``residuals`` holds.

    Residuals do not fit the form, or would have made it too large: they are evaluated and never inspected.
    """

    filters: tuple[AttributeFilter, ...] = ()
    residuals: tuple[Node, ...] = ()


NormalForm = tuple[Conjunction, ...]
"""Disjunction of conjunctions; an empty one never holds."""
