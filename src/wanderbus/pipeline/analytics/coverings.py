"""Coverage between live subscriptions: filters that match wherever another one does (SPEC B-02, T-08).

Subscribers choose the filters, so the work of comparing them is counted for each, and cut off. What is not compared is
in a table of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.errors import FilterError
from wanderbus.filters import parse
from wanderbus.filters.covering import covers, form_of
from wanderbus.filters.normal import NormalForm
from wanderbus.filters.weights import weight_of
from wanderbus.pipeline.analytics.arrow_columns import arrow_columns
from wanderbus.pipeline.analytics.entries import lake_of
from wanderbus.work import WorkBudget, WorkExceeded

FILTERS_MAX: Final = 400
"""Filters of one subject that are compared with one another: those that most subscriptions have."""

FILTER_WORK_MAX: Final = 5_000_000
"""Units of work of about 10 ns for one filter: its normal form, and its comparisons with filters that are no larger."""

COVERING: Final = (
    "subject string, covering string, covering_expression string, covering_subscriptions bigint, covered string, "
    "covered_expression string, covered_subscriptions bigint, is_equal boolean"
)
UNCOMPARED: Final = "subject string, id string, expression string, subscriptions bigint, uncompared bigint"
_COMPARED: Final = f"{COVERING}, uncompared bigint"
_SCHEMA: Final = arrow_columns(_COMPARED)


class OneFilter(NamedTuple):
    """A filter with the smallest id of the subscriptions that have it, and their number."""

    id: str
    expression: str
    language: str
    subscriptions: int


class Compared(NamedTuple):
    """Result of comparing filters with one another."""

    pairs: list[tuple[OneFilter, OneFilter, bool]]
    """Each filter with another one that it covers, and whether both cover each other; then they are there once."""
    uncompared: dict[OneFilter, int]
    """Number of the others with which a filter was not compared."""


def compared(versions: DataFrame) -> DataFrame:
    """Return the comparison of the different filters of each subject in each lake, as rows of one frame.

    :func:`coverings` and :func:`uncompared` select from it. A filter is named by the first subscription that has it.
    """
    live = versions.where("is_live")
    distinct = live.groupBy("subject", "expression", "language", lake_of("from_offset")).agg(
        F.min("id").alias("id"), F.count("*").alias("subscriptions")
    )

    most = FILTERS_MAX

    def work(rows: pa.Table) -> pa.Table:
        (subject,) = set(rows.column("subject").to_pylist())
        filters = [OneFilter(*(row[name] for name in OneFilter._fields)) for row in rows.to_pylist()]
        filters.sort(key=lambda each: (-each.subscriptions, each.id))
        found = compare(filters, most)
        made: list[tuple[object, ...]]
        made = [(subject, *_named(one), *_named(other), is_equal, None) for one, other, is_equal in found.pairs]
        made += [(subject, *_named(each), *_NOBODY, None, count) for each, count in found.uncompared.items()]
        return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in made], schema=_SCHEMA)

    return distinct.groupBy("subject", "lake").applyInArrow(work, _COMPARED)


def coverings(found: DataFrame) -> DataFrame:
    """Return the pairs of different filters of one subject of which one is proved to cover the other.

    Two that cover each other are equal, and are there once.
    """
    return found.where("uncompared is null").drop("uncompared")


def uncompared(found: DataFrame) -> DataFrame:
    """Return the filters that were not compared with all others of their subject, and with how many they were not."""
    return found.where("uncompared is not null").select(
        "subject",
        F.col("covering").alias("id"),
        F.col("covering_expression").alias("expression"),
        F.col("covering_subscriptions").alias("subscriptions"),
        "uncompared",
    )


def compare(filters: Sequence[OneFilter], most: int = FILTERS_MAX) -> Compared:
    """Compare the first ``most`` of ``filters``, those that most subscriptions have first, with one another."""
    found = Compared([], {})
    known: list[_Known] = []
    for place, each in enumerate(filters):
        budget = WorkBudget(FILTER_WORK_MAX)
        try:
            form = form_of(parse(each.expression, each.language).root, budget) if place < most else None
        except FilterError:
            form = None  # a filter of another version of its language
        if form is None:
            found.uncompared[each] = len(filters) - 1
        else:
            known.append(_Known(sum(map(weight_of, form)), place, each, form, budget))
    known.sort(key=lambda each: (each.weight, each.place))
    for number, larger in enumerate(known):
        for smaller in known[:number]:
            one, other = sorted((smaller, larger), key=lambda each: each.place)
            try:
                # The larger one makes the comparison costly.
                is_covering = covers(one.form, other.form, larger.work)
                is_covered = covers(other.form, one.form, larger.work)
            except WorkExceeded:
                for each in (one.filter, other.filter):
                    found.uncompared[each] = found.uncompared.get(each, 0) + 1
                continue
            if is_covering:
                found.pairs.append((one.filter, other.filter, is_covered))
            elif is_covered:
                found.pairs.append((other.filter, one.filter, False))
    return found


class _Known(NamedTuple):
    """A filter with its normal form and the work that it may still cause."""

    weight: int
    place: int
    filter: OneFilter
    form: NormalForm
    work: WorkBudget


_NOBODY: Final = None, None, None


def _named(one: OneFilter) -> tuple[str, str, int]:
    return one.id, one.expression, one.subscriptions
