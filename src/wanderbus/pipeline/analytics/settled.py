"""Fates of matches, acknowledgements, absences, moves and handovers, settled by the entries of all users in one pass.

The entries of a user are in one partition, in order, so a worker keeps the matches of one user that wait, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.arrow_columns import arrow_columns
from wanderbus.pipeline.analytics.entries import ENTRY
from wanderbus.pipeline.analytics.handovers import Handover
from wanderbus.pipeline.analytics.user_fold import Fate, FoldEntry, Taking
from wanderbus.pipeline.analytics.user_logs import UserLogs

SETTLED: Final = (
    "user string, kind string, session string, subject string, number bigint, subscription string, offset bigint, "
    "at_us bigint, event_offset bigint, outcome string, ended_us bigint, reason string, device string, away_us bigint, "
    "is_redelivered boolean, former string, address string, "
    "handover struct<session:string,owner_epoch:bigint,source:string,target:string,cause:string,awaited_us:bigint,"
    "fenced_us:bigint,imported_us:bigint,done_us:bigint,withdrawn_us:bigint,notifications:bigint,bytes:bigint,"
    "taken_us:bigint,matched_us:bigint,event_offset:bigint>"
)
"""Columns of all kinds of rows: ``fate``, ``acknowledgement``, ``absence``, ``move`` and ``handover``."""

_SCHEMA: Final = arrow_columns(SETTLED)
_ENTRY_NAMES: Final = [column.split()[0] for column in ENTRY.split(", ")][1:]
_BATCH_ROWS: Final = 16_384

Row = tuple[Any, ...]


def settled(entries: DataFrame, servers: tuple[str, ...] = (), *, is_small: bool = False) -> DataFrame:
    """Return the rows that the entries of these ``servers`` settle, as :data:`SETTLED`.

    One task settles them if they are few. Times of records never decrease in a log.
    """
    divided = entries.coalesce(1) if is_small else entries.repartition("user")
    ordered = divided.sortWithinPartitions("user", "at_us", "offset", F.col("kind") != "notified", "kind", "last")
    return ordered.select("user", *_ENTRY_NAMES).mapInArrow(_folding(servers), SETTLED)


def matches(rows: DataFrame) -> DataFrame:
    """Return one row for each match: a notification for one subscription, and its outcome."""
    return rows.where("kind = 'fate'").select(
        *("offset", "at_us", "subject", "user", "session", "number", "subscription"),
        *("outcome", "ended_us", "reason", "device"),
    )


def acknowledgements(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Return one row for each match that a device acknowledged, with the parts of its latency.

    ``published_us`` is null if the publisher gave no time, and for events that a subscription read from the past.
    """
    accepted = events.select(F.col("offset").alias("event_offset"), "published_us", F.col("at_us").alias("accepted_us"))
    taken = rows.where("kind = 'acknowledgement'").join(accepted, "event_offset", "left")
    return taken.select(
        *("offset", "subject", "user", "session", "device", "number", "subscription"),
        "published_us",
        F.coalesce("accepted_us", "at_us").alias("accepted_us"),
        F.col("at_us").alias("matched_us"),
        F.col("ended_us").alias("taken_us"),
        "away_us",
        "is_redelivered",
    )


def absences(rows: DataFrame) -> DataFrame:
    """Return one row for each time in which a device was DISCONNECTED."""
    return rows.where("kind = 'absence'").select(
        *("user", "device", F.col("at_us").alias("from_us"), F.col("ended_us").alias("to_us")),
        *("reason", F.col("outcome").alias("ended")),
    )


def moves(rows: DataFrame, taken: DataFrame) -> DataFrame:
    """Return one row for each change of the address of a device's data.

    ``healed_us`` is the first acknowledgement of the device afterwards, before its next change, and ``healing_us`` the
    time until then from the change, or from the match if that is later.
    """
    changes = rows.where("kind = 'move'").selectExpr("user", "device", "at_us as moved_us", "former", "address")
    own = Window.partitionBy("user", "device").orderBy("moved_us")
    spans = changes.withColumn("until_us", F.lead("moved_us").over(own))
    first = F.min_by(F.struct("taken_us", "matched_us"), F.struct("taken_us", "offset")).alias("acknowledgement")
    acknowledged = taken.select("user", "device", "offset", "taken_us", "matched_us")
    is_after = (F.col("taken_us") >= F.col("moved_us")) & (
        F.col("until_us").isNull() | (F.col("taken_us") < F.col("until_us"))
    )
    found = (
        spans.join(acknowledged, ["user", "device"])
        .where(is_after)
        .groupBy("user", "device", "moved_us", "address")
        .agg(first)
    )
    healing = F.col("acknowledgement.taken_us") - F.greatest("moved_us", "acknowledgement.matched_us")
    return spans.join(found, ["user", "device", "moved_us", "address"], "left").select(
        *("user", "device", "moved_us", "former", "address"),
        F.col("acknowledgement.taken_us").alias("healed_us"),
        healing.alias("healing_us"),
    )


def handovers(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Return one row for each handover of a session from server to server.

    ``gap_us`` is the time until a device acknowledged at the target, if one was connected at the source: from the
    fence, or from the event if that came later.
    """
    accepted = events.select(F.col("offset").alias("event_offset"), F.col("at_us").alias("accepted_us"))
    own = rows.where("kind = 'handover'").select("user", "handover.*").join(accepted, "event_offset", "left")
    gap = F.col("taken_us") - F.greatest("fenced_us", F.coalesce("accepted_us", "matched_us"))
    outcome = F.when(F.col("fenced_us").isNull() & F.col("withdrawn_us").isNotNull(), "withdrawn")
    return own.select(
        *("user", "session", "owner_epoch", "source", "target", "cause"),
        outcome.when(F.col("imported_us").isNull(), "under_way").otherwise("moved").alias("outcome"),
        F.coalesce("awaited_us", "fenced_us", "imported_us", "withdrawn_us", "done_us").alias("begun_us"),
        *("awaited_us", "fenced_us", "imported_us", "done_us", "notifications", "bytes", "taken_us"),
        F.when(gap < 0, 0).otherwise(gap).alias("gap_us"),
    )


def _folding(servers: tuple[str, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[Row] = []
        for row in _rows(batches, servers):
            found.append(row)
            if len(found) == _BATCH_ROWS:
                yield _batch(found)
                found = []
        yield _batch(found)

    return fold


def _rows(batches: Iterator[pa.RecordBatch], servers: tuple[str, ...]) -> Iterator[Row]:
    """Yield what each user's entries settle; the users follow one another."""
    present: str | None = None
    logs = UserLogs(servers)
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("user", *_ENTRY_NAMES)]
        for user, *values in zip(*columns, strict=True):
            if user != present:
                if present is not None:
                    yield from _closed(present, logs)
                present, logs = user, UserLogs(servers)
            for each in logs.step(FoldEntry(*values)):
                yield _row(user, each)
    if present is not None:
        yield from _closed(present, logs)


def _closed(user: str, logs: UserLogs) -> Iterator[Row]:
    for found in logs.close():
        if isinstance(found, Handover):
            yield _values(user, "handover", handover=msgspec.structs.asdict(found))
        else:
            yield _row(user, found)
    for fold in logs.folds:
        for each in fold.times.absences:
            own = {"at_us": each.from_us, "ended_us": each.to_us, "reason": each.reason, "outcome": each.ended}
            yield _values(user, "absence", device=each.device, **own)
        for move in fold.times.moves:
            own = {"at_us": move.moved_us, "former": move.former, "address": move.address}
            yield _values(user, "move", device=move.device, **own)


def _row(user: str, each: Fate | Taking) -> Row:
    if isinstance(each, Fate):
        return (user, "fate", *each.match, each.outcome, each.ended_us, each.reason, each.device, *_NOTHING)
    return (
        *(user, "acknowledgement", *each.match, None, each.taken_us, None, each.device),
        *(each.away_us, each.is_redelivered, None, None, None),
    )


_NOTHING: Final = (None,) * 5


def _values(user: str, kind: str, **values: Any) -> Row:
    own = {"user": user, "kind": kind, **values}
    return tuple(own.get(name) for name in _SCHEMA.names)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
