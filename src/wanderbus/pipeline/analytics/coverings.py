"""Coverage between live subscriptions: filters that match wherever another one does (SPEC B-02, T-08)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.errors import FilterError
from wanderbus.filters import parse
from wanderbus.filters.covering import covers, form_of

FILTERS_MAX: Final = 400
"""Filters of one subject that are compared with one another: those that most subscriptions have."""

COVERING: Final = (
    "subject string, covering string, covering_expression string, covering_subscriptions bigint, covered string, "
    "covered_expression string, covered_subscriptions bigint, is_equal boolean"
)
_TYPES: Final = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}
_SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in (each.split() for each in COVERING.split(", "))])


class OneFilter(NamedTuple):
    """A filter with the smallest id of the subscriptions that have it, and their number."""

    id: str
    expression: str
    language: str
    subscriptions: int


def coverings(versions: DataFrame) -> DataFrame:
    """Return the pairs of different filters of one subject of which one is proved to cover the other.

    Two that cover each other are equal, and are there once. A filter is named by the first subscription that has it.
    """
    live = versions.where("is_live")
    distinct = live.groupBy("subject", "expression", "language").agg(
        F.min("id").alias("id"), F.count("*").alias("subscriptions")
    )

    def work(rows: pa.Table) -> pa.Table:
        (subject,) = set(rows.column("subject").to_pylist())
        filters = [OneFilter(*(row[name] for name in OneFilter._fields)) for row in rows.to_pylist()]
        filters.sort(key=lambda each: (-each.subscriptions, each.id))
        pairs = covering_pairs(filters[:FILTERS_MAX])
        found = [(subject, *_named(one), *_named(other), is_equal) for one, other, is_equal in pairs]
        return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in found], schema=_SCHEMA)

    return distinct.groupBy("subject").applyInArrow(work, COVERING)


def uncompared(counts: DataFrame) -> DataFrame:
    """Return, as one row, the number of filters that :func:`coverings` leaves out, of the counts of subscriptions."""
    filters = counts.where("is_live").groupBy("subject").agg(F.countDistinct("expression", "language").alias("filters"))
    beyond = F.greatest(F.col("filters") - FILTERS_MAX, F.lit(0))
    return filters.agg(F.coalesce(F.sum(beyond), F.lit(0)).alias("uncompared"))


def covering_pairs(filters: Sequence[OneFilter]) -> Iterator[tuple[OneFilter, OneFilter, bool]]:
    """Yield each filter with every other one that it covers, and whether both cover each other, then once."""
    known = []
    for each in filters:
        try:
            known.append((each, form_of(parse(each.expression, each.language).root)))
        except FilterError:
            continue  # a filter of another version of its language: nothing is known of it
    for place, (one, form) in enumerate(known):
        for other, its_form in known[place + 1 :]:
            is_covering, is_covered = covers(form, its_form), covers(its_form, form)
            if is_covering:
                yield one, other, is_covered
            elif is_covered:
                yield other, one, False


def _named(one: OneFilter) -> tuple[str, str, int]:
    return one.id, one.expression, one.subscriptions
