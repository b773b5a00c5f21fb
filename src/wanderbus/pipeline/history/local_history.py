"""Answers from past events that this process reads itself, for so few that Spark would start longer than it works.

The work on a batch is that of Spark's workers (:mod:`wanderbus.pipeline.history.matched_rows`), so the answers are the
same (decision 0137). Nothing here loads Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from wanderbus.event import Event
from wanderbus.pipeline.history.answers import AnswerTooLarge, Found, PastDecision
from wanderbus.pipeline.history.arrivals import arrived_events
from wanderbus.pipeline.history.event_files import Selection
from wanderbus.pipeline.history.explanation import EventExplanation, encoded_rows, explanation_of, no_event
from wanderbus.pipeline.history.lifetimes import KINDS, Absences, Change, SubscriptionVersion, UserAbsence
from wanderbus.pipeline.history.local_batches import LocalBatches
from wanderbus.pipeline.history.matched_rows import drawn_rows, matched_counts, matching_rows, undecided_counts
from wanderbus.pipeline.history.queries import MatcherWork, Queries, matcher_of, queries_of, undecidable
from wanderbus.pipeline.history.replay_rows import Replay, VersionLifetimes, candidates_of, replay_queries
from wanderbus.records import decode_record
from wanderbus.subscription import Subscription

ANSWER_BYTES_MAX: Final = 128 * 2**20
"""Bytes of an answer that are in memory at once, until its rows are in order."""

_ROWS_AT_ONCE: Final = 1_000

Row = TypeVar("Row")

Watch = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Function that passes batches on, and sees how many have been read."""

_event: Final = msgspec.msgpack.Decoder(Event)


class LocalHistory:
    """The events of the ``selection`` in ``batches``, which are found in an ``order`` of columns."""

    def __init__(
        self,
        batches: LocalBatches,
        selection: Selection,
        watch: Watch = iter,
        order: Sequence[str] = ("offset",),
    ) -> None:
        self._order = order
        self._batches = batches
        self._selection = selection
        self._watch = watch

    def matching(self, subscriptions: Iterable[Subscription], work_max: int) -> Iterator[Found]:
        """Return the events that match any of the subscriptions."""
        return self._found(subscriptions, work_max, self._selection)

    def count(self, subscriptions: Iterable[Subscription], work_max: int) -> int:
        """Return the number of pairs of an event and a subscription that it matches."""
        return _sum(self._run(queries_of(subscriptions, work_max), matched_counts))

    def sample(self, subscriptions: Iterable[Subscription], size: int, seed: int, work_max: int) -> Iterator[Found]:
        """Return up to ``size`` of the events that match the subscriptions."""
        several = list(subscriptions)
        queries = queries_of(several, work_max)
        drawn = self._run(queries, lambda matcher, batches: drawn_rows(matcher, batches, size, seed))
        rows = _sorted(drawn, ("draw", "offset"))
        offsets = [] if rows is None else rows["offset"].to_pylist()[:size]
        return self._found(several, work_max, self._selection._replace(offsets=frozenset(offsets)))

    def undecided(self, subscriptions: Iterable[Subscription], work_max: int) -> int:
        """Return the number of pairs of an event and a subscription that are undecided."""
        queries = undecidable(subscriptions, work_max)
        return 0 if queries is None else _sum(self._run(queries, undecided_counts))

    def explain(
        self, subscription: Subscription, offset: int, work_max: int, children: Mapping[str, tuple[str, ...]]
    ) -> EventExplanation:
        """Return the reason for which the event at ``offset`` matches, or does not."""
        there = self._selection._replace(from_offset=offset, to_offset=offset + 1)
        any_attribute = queries_of([])._replace(asked=None)
        for batch in self._run(any_attribute, encoded_rows, there):
            if len(batch):
                event = _event.decode(batch.column("event")[0].as_py())
                return explanation_of(event, subscription, offset, work_max, children)
        raise no_event(offset)

    def changes(self) -> list[Change]:
        """Return the records of subscriptions, devices and starts."""
        rows = _sorted((batch.select(["offset", "record"]) for batch in self._batches.records(KINDS)), ("offset",))
        if rows is None:
            return []
        columns = (rows[name].to_pylist() for name in ("offset", "record"))
        return [(offset, decode_record(record)) for offset, record in zip(*columns, strict=True)]

    def replay(
        self, versions: Sequence[SubscriptionVersion], absences: Iterable[UserAbsence], work_max: int
    ) -> Iterator[PastDecision]:
        """Return the decisions on the notifications of one subscription's versions."""
        queries, candidates = replay_queries(versions, work_max), candidates_of(VersionLifetimes(versions))
        rows = _sorted(self._candidates(queries, candidates), ("subscription", "offset"))
        if rows is None:
            return iter(())
        decided = Replay(versions, Absences(absences), {}).decided(rows.to_batches())
        rows = _sorted((batch.select(PastDecision._fields) for batch in decided), ("offset",))
        return _rows(rows, PastDecision)

    def _candidates(self, queries: Queries, work: MatcherWork) -> Iterator[pa.RecordBatch]:
        yield from self._run(queries, work, further=("at_us", "received_us"))
        condition = self._selection.condition()
        arrived = arrived_events(self._batches.records(["arrived"]))
        chosen = arrived if condition is None else (batch.filter(condition) for batch in arrived)
        yield from work(matcher_of(queries), chosen)

    def _found(self, subscriptions: Iterable[Subscription], work_max: int, selection: Selection) -> Iterator[Found]:
        queries = queries_of(subscriptions, work_max)._replace(asked=None)
        found = self._run(queries, matching_rows, selection, ["at_us", "user"])
        return _rows(_sorted((batch.select(Found._fields) for batch in found), self._order), Found)

    def _run(
        self, queries: Queries, work: MatcherWork, selection: Selection | None = None, further: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Return the result of ``work`` on the columns that the queries need."""
        batches = self._batches.events(selection or self._selection, queries.asked, further)
        return work(matcher_of(queries), self._watch(batches))


def _sum(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(sum(batch.column("events").to_pylist()) for batch in batches)


def _sorted(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> pa.Table | None:
    """Return the rows of batches in the order of some columns; None if there are none."""
    kept, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > ANSWER_BYTES_MAX:
            raise AnswerTooLarge(f"the answer has more than {ANSWER_BYTES_MAX >> 20} MiB; answer with --spark")
        if len(batch):
            kept.append(batch)
    return pa.Table.from_batches(kept).sort_by([(name, "ascending") for name in columns]) if kept else None


def _rows(table: pa.Table | None, kind: Callable[..., Row]) -> Iterator[Row]:
    """Yield the rows of a table as tuples of this kind, which has the table's columns."""
    for batch in () if table is None else table.to_batches(_ROWS_AT_ONCE):
        yield from (kind(**row) for row in batch.to_pylist())
