"""Replays of subscriptions by Spark (SPEC T-04)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame

from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.pipeline.history.lifetimes import Absences, SubscriptionVersion, UserAbsence
from wanderbus.pipeline.history.replay_rows import Replay, VersionLifetimes, candidates_of, replay_queries
from wanderbus.pipeline.history.spark_batches import Events, in_workers
from wanderbus.pipeline.source import ColumnError

_CANDIDATES: Final = (
    "subscription string, version int, offset bigint, at_us bigint, received_us bigint, event binary, undecided boolean"
)
_REPLAYED: Final = "subscription string, offset bigint, at_us bigint, restricted_by int, undecided boolean"


def replay(
    events: Events,
    versions: Sequence[SubscriptionVersion],
    absences: Iterable[UserAbsence] = (),
    kinds: Mapping[str, Kind] | None = None,
    arrived: DataFrame | None = None,
    work_max: int = FILTER_WORK_MAX,
) -> DataFrame:
    """Return the events that each subscription matches during its lifetime, with the decision of its restrictions.

    ``restricted_by`` is the place of the restriction that forbids the notification; it is null for a notification that
    is generated. ``undecided`` is true if the filter takes more than ``work_max`` units of work for the event.
    ``events`` has a column ``at_us``, and optionally ``received_us``; see
    :mod:`wanderbus.pipeline.history.event_columns` for the others. The ``versions`` of one subscription do not overlap.
    ``absences`` are those of the owners, for restrictions that hold while the owner is away. ``kinds`` are the
    operator's kinds of restriction; an unknown kind forbids. A subscription gets the events that its own server
    accepted, and those that arrived there: ``arrived`` are the latter, as
    :func:`~wanderbus.pipeline.history.arrivals.arrivals` returns them.
    """
    queries, candidates = replay_queries(versions, work_max), candidates_of(VersionLifetimes(versions))
    restrictions = Replay(versions, Absences(absences), kinds or {})
    found = in_workers(events, queries, candidates, _CANDIDATES, _further(events))
    if arrived is not None:
        found = found.union(in_workers(arrived, queries, candidates, _CANDIDATES, _further(arrived)))
    ordered = found.repartition("subscription").sortWithinPartitions("subscription", "offset")
    return ordered.mapInArrow(restrictions.decided, _REPLAYED)


def _further(events: Events) -> list[str]:
    """Return the columns that a replay needs beside those for matching."""
    further = ["at_us", "received_us"]
    if isinstance(events, DataFrame):
        further = [name for name in further if name in events.columns]
        if "at_us" not in further:
            raise ColumnError("a replay needs the column 'at_us' of the events")
    return further
