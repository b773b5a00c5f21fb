"""Fates of matches, acknowledgements, absences and moves, settled by the entries of all users in one pass.

The entries of a user are in one partition, in order, so a worker keeps the matches of one user that wait, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.entries import ENTRY
from wanderbus.pipeline.analytics.user_fold import Fate, FoldEntry, Taking, UserFold
from wanderbus.pipeline.lake_offsets import base_below

SETTLED: Final = (
    "user string, kind string, session string, subject string, number bigint, subscription string, offset bigint, "
    "at_us bigint, event_offset bigint, outcome string, ended_us bigint, reason string, device string, away_us bigint, "
    "is_redelivered boolean, former string, address string"
)
"""Columns of all kinds of rows: ``fate``, ``acknowledgement``, ``absence`` and ``move``."""

_TYPES: Final = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}
_SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in (each.split() for each in SETTLED.split(", "))])
_ENTRY_NAMES: Final = [column.split()[0] for column in ENTRY.split(", ")][1:]
_BATCH_ROWS: Final = 16_384

Row = tuple[Any, ...]


def settled(entries: DataFrame, *, is_small: bool = False) -> DataFrame:
    """Return the rows that the entries settle, as :data:`SETTLED`; one task settles them if they are few."""
    divided = entries.coalesce(1) if is_small else entries.repartition("user")
    ordered = divided.sortWithinPartitions("user", "offset", F.col("kind") != "notified", "kind", "last")
    return ordered.select("user", *_ENTRY_NAMES).mapInArrow(_fold, SETTLED)


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


def _fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found: list[Row] = []
    for row in _rows(batches):
        found.append(row)
        if len(found) == _BATCH_ROWS:
            yield _batch(found)
            found = []
    yield _batch(found)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """Yield what each user's entries in each log settle; the users follow one another."""
    present: tuple[str, int] | None = None
    fold = UserFold()
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("user", *_ENTRY_NAMES)]
        for user, *values in zip(*columns, strict=True):
            entry = FoldEntry(*values)
            if (own := (user, base_below(entry.offset))) != present:
                if present is not None:
                    yield from _closed(present[0], fold)
                present, fold = own, UserFold()
            for each in fold.step(entry):
                yield _row(user, each)
    if present is not None:
        yield from _closed(present[0], fold)


def _closed(user: str, fold: UserFold) -> Iterator[Row]:
    for fate in fold.close():
        yield _row(user, fate)
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
        *(each.away_us, each.is_redelivered, None, None),
    )


_NOTHING: Final = (None, None, None, None)


def _values(user: str, kind: str, **values: Any) -> Row:
    own = {"user": user, "kind": kind, **values}
    return tuple(own.get(name) for name in _SCHEMA.names)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
