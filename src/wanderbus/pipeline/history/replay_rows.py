"""Replay of subscriptions with their lifetimes and restrictions: the notifications that they would have generated.

The broker's own code decides (:mod:`wanderbus.broker.restrictions`), in order of offset for each subscription. As in
the broker, an event's own time is that of its record, and time windows use the wall clock at its receipt. An event
for which a filter takes too much work is undecided: its notification was generated, and dropped at once in favour of a
gap. The bounds on the work of all filters of a user and on queues are not replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.event import Event
from wanderbus.pipeline.history.event_columns import table_of
from wanderbus.pipeline.history.lifetimes import Absences, SubscriptionVersion
from wanderbus.pipeline.history.queries import MatcherWork, Queries, QueryMatcher, queries_of
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG, base_below
from wanderbus.pipeline.source.record_columns import received_us_of
from wanderbus.subscription import Custom

_NEVER: Final = 2**63 - 1

_events: Final = msgspec.msgpack.Decoder(Event)


def replay_queries(versions: Sequence[SubscriptionVersion], work_max: int) -> Queries:
    """Return the subscriptions of ``versions``; an operator's restriction may ask for any attribute."""
    queries = queries_of((each.subscription for each in versions), work_max)
    has_custom = any(isinstance(one, Custom) for each in versions for one in each.subscription.restrictions)
    return queries._replace(asked=None) if has_custom else queries


def candidates_of(lifetimes: VersionLifetimes) -> MatcherWork:
    """Return the work on batches of events that yields the candidates of the subscriptions' ``lifetimes``."""

    def candidates(matcher: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (lifetimes.candidates(matcher, batch) for batch in batches)

    return candidates


class VersionLifetimes:
    """The times in which versions of subscriptions are live, each in the log of its server alone."""

    def __init__(self, versions: Sequence[SubscriptionVersion]) -> None:
        ends = [
            base_below(each.from_offset) + OFFSETS_A_LOG if each.to_offset is None else each.to_offset
            for each in versions
        ]
        expiries = [each.subscription.expires_us for each in versions]
        self._from = np.array([each.from_offset for each in versions], np.int64)
        self._to = np.array(ends, np.int64)
        self._expires_us = np.array([_NEVER if each is None else each for each in expiries], np.int64)
        self._needs_event = np.array(
            [any(isinstance(one, Custom) for one in each.subscription.restrictions) for each in versions], bool
        )

    def candidates(self, matcher: QueryMatcher, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the pairs of an event and a version that it matches while that is live."""
        table = table_of(batch)
        found, left_out = matcher.judged_in(table)
        rows, versions = (np.concatenate(each) for each in zip(found, left_out, strict=True))
        is_undecided = np.arange(len(rows)) >= len(found.rows)
        offsets, times = batch.column("offset").to_numpy(), batch.column("at_us").to_numpy()
        is_live = (self._from[versions] <= offsets[rows]) & (offsets[rows] < self._to[versions])
        is_live &= times[rows] < self._expires_us[versions]
        rows, versions, is_undecided = rows[is_live], versions[is_live], is_undecided[is_live]
        columns = [
            matcher.ids.take(pa.array(versions, pa.int64())),
            pa.array(versions, pa.int32()),
            pa.array(offsets[rows], pa.int64()),
            pa.array(times[rows], pa.int64()),
            _received_us(batch.take(pa.array(rows, pa.int64()))),
            self._events(batch, table, rows, versions),
            pa.array(is_undecided, pa.bool_()),
        ]
        names = ["subscription", "version", "offset", "at_us", "received_us", "event", "undecided"]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _events(self, batch: pa.RecordBatch, table: Any, rows: Any, versions: Any) -> pa.Array:
        if not self._needs_event.any():
            return pa.nulls(len(rows), pa.binary())
        subjects = batch.column("subject")
        return pa.array(
            [
                msgspec.msgpack.encode(Event(subjects[row].as_py(), table.attributes(row))) if is_needed else None
                for row, is_needed in zip(rows.tolist(), self._needs_event[versions].tolist(), strict=True)
            ],
            pa.binary(),
        )


def _received_us(batch: pa.RecordBatch) -> pa.Array:
    """Return the wall clock at receipt, from the record if there is no column of it; without one, the event's time."""
    times = batch.column("at_us")
    if "received_us" not in batch.schema.names:
        payloads = batch.column("record").to_pylist() if "record" in batch.schema.names else None
        return times if payloads is None else pa.array(map(received_us_of, payloads), pa.int64())
    return pc.coalesce(batch.column("received_us"), times)


class Replay:
    """Restrictions of versions, decided for one subscription after the other, in order of offset."""

    def __init__(self, versions: Sequence[SubscriptionVersion], absences: Absences, kinds: Mapping[str, Kind]) -> None:
        self._subscriptions = [each.subscription for each in versions]
        self._absences = absences
        self._kinds = dict(kinds)

    def decided(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the decisions on candidates that are sorted by subscription and offset."""
        kinds = CustomRestrictions(self._kinds)
        current: str | None = None
        last_us: int | None = None
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in batch.schema.names]
            places: list[int | None] = []
            for identity, version, offset, at_us, received_us, event, _ in zip(*columns, strict=True):
                if identity != current:
                    current, last_us = identity, None
                subscription = self._subscriptions[version]
                place = blocked_by(
                    subscription.restrictions,
                    now_us=at_us,
                    received_us=received_us,
                    last_us=last_us,
                    away=self._absences.is_away(subscription.owner, offset),
                    event=_NO_EVENT if event is None else _events.decode(event),
                    kinds=kinds,
                )
                places.append(place)
                if place is None:
                    last_us = at_us
            yield pa.RecordBatch.from_arrays(
                [
                    *(batch.column(name) for name in ("subscription", "offset", "at_us")),
                    pa.array(places, pa.int32()),
                    batch.column("undecided"),
                ],
                names=["subscription", "offset", "at_us", "restricted_by", "undecided"],
            )


_NO_EVENT: Final = Event("", {})
"""Event for restrictions that do not depend on it: all but the operator's."""
