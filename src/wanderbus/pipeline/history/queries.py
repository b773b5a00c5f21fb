"""Subscriptions as flat arrays, which the workers get once, and the index that each Python worker makes of them.

A worker process keeps the index for the tasks that follow: making it takes some tenths of a second, loading the
compiled kernel a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from wanderbus import filters
from wanderbus.errors import FilterError
from wanderbus.filters.ast import And, Exists, Node, Not, Or, Quantified
from wanderbus.filters.work_counts import Work
from wanderbus.matching import Index
from wanderbus.matching.table import EventTable
from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.pipeline.history.event_columns import table_of
from wanderbus.pipeline.history.filter_bounds import RowBound, works_beyond
from wanderbus.subscription import EVERY_SUBJECT, Subscription

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


class Queries(NamedTuple):
    """Subscriptions, numbered in their order: the indexes of those of one subject, and of those of every subject."""

    key: str
    ids: tuple[str, ...]
    of_subject: Arrays | None
    of_every: Arrays | None
    asked: frozenset[str] | None
    """Attributes that the filters name; None if they may ask for any."""

    works: Mapping[int, Work]
    """Work of the filters that can exceed ``work_max`` for some event, by their numbers."""

    work_max: int


class Pairs(NamedTuple):
    """Pairs of an event and a subscription that it matches, by their places; in order of the events."""

    rows: Array
    queries: Array


def queries_of(subscriptions: Iterable[Subscription], work_max: int = FILTER_WORK_MAX) -> Queries:
    """Return the subscriptions as flat arrays; :class:`FilterError` for one that cannot be parsed.

    A filter that takes more than ``work_max`` units for an event is undecided for it.
    """
    of_subject, of_every = Index(), Index()
    several = tuple(subscriptions)
    parsed = [_parsed(each) for each in several]
    wanted: list[tuple[str, str, filters.Filter]] = [
        (str(number), each.subject, its_filter)
        for number, (each, its_filter) in enumerate(zip(several, parsed, strict=True))
    ]
    for index, is_every in ((of_subject, False), (of_every, True)):
        index.add_many([each for each in wanted if (each[1] == EVERY_SUBJECT) is is_every])
    return Queries(
        uuid4().hex,
        tuple(each.id for each in several),
        of_subject.arrays() if len(of_subject) else None,
        of_every.arrays() if len(of_every) else None,
        attributes_asked(parsed),
        works_beyond(parsed, work_max),
        work_max,
    )


def undecidable(subscriptions: Iterable[Subscription], work_max: int) -> Queries | None:
    """Return those of the subscriptions that can be undecided for some event; None if there are none."""
    several = list(subscriptions)
    works = queries_of(several, work_max).works
    return queries_of((several[place] for place in works), work_max) if works else None


def attributes_asked(several: Iterable[filters.Filter]) -> frozenset[str] | None:
    """Return the attributes that some filters name; None if one of them may ask for any."""
    asked: set[str] = set()
    are_named = [_add_asked(each.root, asked) for each in several]
    return frozenset(asked) if all(are_named) else None


def _parsed(subscription: Subscription) -> filters.Filter:
    try:
        return filters.parse(subscription.expression, subscription.language)
    except FilterError as error:
        raise FilterError(f"subscription {subscription.id}: {error.reason}", error.text, error.position) from None


def _add_asked(node: Node, asked: set[str]) -> bool:
    """Add the attributes that a filter names; return False if it may ask for any, because it is no plain tree."""
    match node:
        case Quantified(attribute=name) | Exists(attribute=name):
            asked.add(name)
        case Not(operand=operand):
            return _add_asked(operand, asked)
        case And(operands=operands) | Or(operands=operands):
            return all(_add_asked(each, asked) for each in operands)
        case _:
            return False
    return True


class QueryMatcher:
    """The index of some queries, in the memory of this process."""

    def __init__(self, queries: Queries) -> None:
        self.ids = pa.array(queries.ids, pa.string())
        self._works, self._work_max = queries.works, queries.work_max
        self._indexes = [
            (Index.from_arrays(arrays), is_every)
            for arrays, is_every in ((queries.of_subject, False), (queries.of_every, True))
            if arrays is not None
        ]
        self._numbers = [
            np.array([-1 if id is None else int(id) for id in index.ids()], np.int64) for index, _ in self._indexes
        ]

    def pairs(self, batch: pa.RecordBatch) -> Pairs:
        """Return the pairs of the events of a batch."""
        return self.pairs_in(table_of(batch))

    def pairs_in(self, table: EventTable) -> Pairs:
        """Return the pairs of the events of a table."""
        return self.judged_in(table)[0]

    def judged_in(self, table: EventTable) -> tuple[Pairs, Pairs]:
        """Return the pairs of the events of a table, and those that are undecided."""
        found, undecided = [], []
        for place in range(len(self._indexes)):
            bound = RowBound(self._works, self._work_max) if self._works else None
            found.append(self._of_index(place, table, bound))
            undecided += bound.undecided if bound else []
        left_out = np.array(sorted(undecided), np.int64).reshape(-1, 2)
        return _joined(found), Pairs(left_out[:, 0], left_out[:, 1])

    def _of_index(self, place: int, table: EventTable, bound: RowBound | None) -> Pairs:
        index, is_every = self._indexes[place]
        judge = bound.holds if bound else None
        places, ends = index.match_table(table.of_subject(EVERY_SUBJECT) if is_every else table, judge)
        rows = np.repeat(np.arange(len(table)), np.diff(ends, prepend=0))
        return Pairs(rows, self._numbers[place][places])


def _joined(found: Sequence[Pairs]) -> Pairs:
    """Return the pairs of several indexes, in order of the events."""
    if len(found) == 1:
        return found[0]
    rows = np.concatenate([np.empty(0, np.int64), *(each.rows for each in found)])
    queries = np.concatenate([np.empty(0, np.int64), *(each.queries for each in found)])
    order = np.argsort(rows, kind="stable")
    return Pairs(rows[order], queries[order])


_matchers: Final[dict[str, QueryMatcher]] = {}
"""The last matcher of this process, by the key of its queries."""


def matcher_of(queries: Queries) -> QueryMatcher:
    """Return the matcher of these queries; it is made once in a process."""
    matcher = _matchers.get(queries.key)
    if matcher is None:
        _matchers.clear()
        matcher = _matchers[queries.key] = QueryMatcher(queries)
    return matcher


MatcherWork = Callable[[QueryMatcher, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Function of a worker: from batches of events to batches of a result."""

BatchWork = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The same without a matcher."""
