"""Entries: the changes of each user's sessions, subscriptions and devices, in one table and in the order of the log.

They come from the silver tables. What these do not have is read from the bronze records: starts of the server, blocked
matches, inherited queues, forgotten subscriptions, and notifications that an earlier life of an agent may have seen
or a new member leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.lake_offsets import LAKE_SHIFT, NUMBER_SHIFT
from wanderbus.pipeline.source.partial_records import DeliveryRecord
from wanderbus.records import (
    Attached,
    Detected,
    Forgotten,
    Matched,
    Replayed,
    Started,
    Subscribed,
    decode_record,
)

ENTRY: Final = (
    "user string, session string, offset bigint, at_us bigint, kind string, subject string, first bigint, last bigint, "
    "subscriptions array<string>, device string, value string, reason string, resumed boolean"
)
"""Columns of an entry.

``value`` is the status or the address of a device, the server that started, or the other one in a handover. ``first``
of an attached device is the life of its agent, that of a notification the offset of its event, and that of a handover
the epoch of the session's owner. ``last`` of an imported session is its size.
"""

MARK: Final = (
    "offset bigint, at_us bigint, kind string, user string, session string, device string, "
    "subscriptions array<string>, number bigint"
)
"""Columns of what only bronze records have: ``number`` is a count of blocked matches, or a notification's number."""

_MARKED: Final = (
    "published",
    "arrived",
    "matched",
    "detected",
    "replayed",
    "forgotten",
    "subscribed",
    "started",
    "attached",
)
_NAMES: Final = [column.split()[0] for column in ENTRY.split(", ")]
_MARK_NAMES: Final = [column.split()[0] for column in MARK.split(", ")]


_deliveries: Final = msgspec.msgpack.Decoder(DeliveryRecord)


def marks(records: DataFrame, homes: Sequence[str] = ()) -> DataFrame:
    """Return what analytics need of the bronze ``records`` (``offset, at_us, kind, record``), as :data:`MARK`.

    Kinds of marks: ``started``, ``restricted`` (one for each blocked match, or one for each piece of history),
    ``inherited`` (the ended subscription and its successor), ``forgotten``, ``redelivered``, and ``begins_behind`` (the
    number behind which a new member of a session begins).

    :param homes: names of the domains of several lakes, which precede the names of their servers
    """
    chosen = records.where(F.col("kind").isin(*_MARKED)).select("offset", "at_us", "kind", "record")

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            offsets, times, kinds, payloads = (batch.column(place).to_pylist() for place in range(4))
            rows = [
                {"offset": offset, "at_us": at_us, **mark}
                for offset, at_us, kind, payload in zip(offsets, times, kinds, payloads, strict=True)
                for mark in _marks_of(kind, payload, homes[offset >> LAKE_SHIFT] + "/" if homes else "")
            ]
            columns = [pa.array([row.get(name) for row in rows], type=_ARROW[name]) for name in _MARK_NAMES]
            yield pa.RecordBatch.from_arrays(columns, names=_MARK_NAMES)

    return chosen.mapInArrow(work, MARK)


_ARROW: Final = {name: pa.string() for name in ("kind", "user", "session", "device")} | {
    **dict.fromkeys(("offset", "at_us", "number"), pa.int64()),
    "subscriptions": pa.list_(pa.string()),
}


def _marks_of(kind: str, payload: bytes, home: str) -> Iterator[dict[str, Any]]:
    if kind in ("published", "arrived"):
        for identity, _ in _deliveries.decode(payload).delivery.restricted:
            yield {"kind": "restricted", "subscriptions": [identity], "number": 1}
        return
    match decode_record(payload):
        case Started(server=server):
            yield {"kind": "started", "user": f"{home}{server}"}
        case Matched(events=events) | Detected(events=events):
            for event in events:
                for identity, _ in event.restricted:
                    yield {"kind": "restricted", "subscriptions": [identity], "number": 1}
        case Replayed(subscription=first, restricted=restricted, others=others):
            for identity, number in ((first, restricted), *others):
                if number:
                    yield {"kind": "restricted", "subscriptions": [identity], "number": number}
        case Forgotten(subscriptions=subscriptions) if subscriptions:
            yield {"kind": "forgotten", "subscriptions": subscriptions}
        case Subscribed(subscription=successor, inherits=ended) if ended is not None:
            own = {"user": successor.owner, "session": successor.session}
            yield {"kind": "inherited", **own, "subscriptions": [ended, successor.id]}
        case Attached() as attached:
            own = {"user": attached.user, "session": attached.session, "device": attached.device}
            for name, found in (("begins_behind", attached.taken), ("redelivered", attached.redelivered)):
                for identity, number in found:
                    yield {"kind": name, **own, "subscriptions": [identity], "number": number}


def owners(subscriptions: DataFrame) -> DataFrame:
    """Return ``subscription, user, session, lake`` of every subscription, once for each lake that has it."""
    return subscriptions.select(
        F.col("id").alias("subscription"), F.col("owner").alias("user"), "session", lake_of("from_offset")
    ).distinct()


def lake_of(offset: str) -> Column:
    """Return the column ``lake``: the number of the lake that has an offset, 0 unless there are several."""
    return F.shiftright(offset, LAKE_SHIFT).alias("lake")


def entries(
    notifications: DataFrame, deliveries: DataFrame, sessions: DataFrame, subscriptions: DataFrame, marked: DataFrame
) -> DataFrame:
    """Return the entries of all users, as :data:`ENTRY`, of the silver tables and the :func:`marks`.

    Kinds: those of deliveries and sessions, ``notified``, ``bound``, ``started``, ``inherited``, ``forgotten``,
    ``begins_behind`` and ``redelivered``. ``started`` is there once for each user of its server.
    """
    forgotten = (
        marked.where("kind = 'forgotten'")
        .select("offset", "at_us", "kind", F.explode("subscriptions").alias("subscription"), lake_of("offset"))
        .join(owners(subscriptions), ["subscription", "lake"])
    )
    log = F.shiftright("offset", NUMBER_SHIFT).alias("log")
    starts = marked.where("kind = 'started'").select("offset", "at_us", "kind", F.col("user").alias("value"), log)
    users = sessions.select("user", log).distinct()
    own = [
        _entry(
            notifications,
            kind=F.lit("notified"),
            first=F.coalesce("event_offset", "offset"),
            last=F.col("number"),
        ),
        _entry(deliveries),
        _entry(
            sessions,
            value=F.coalesce("status", "address", "other_server"),
            first=F.coalesce("epoch", "owner_epoch"),
            last=F.col("export_bytes"),
        ),
        _entry(
            subscriptions.where("device is not null"),
            kind=F.lit("bound"),
            user=F.col("owner"),
            offset=F.col("from_offset"),
            at_us=F.col("from_us"),
            subscriptions=F.array("id"),
        ),
        _entry(marked.where("kind in ('inherited', 'begins_behind', 'redelivered')"), last=F.col("number")),
        _entry(forgotten, subscriptions=F.array("subscription")),
        _entry(starts.join(users, "log")),
    ]
    return reduce(DataFrame.unionByName, own)


def _entry(rows: DataFrame, **given: Column) -> DataFrame:
    """Return rows with the columns of an entry: those given, those of the rows by name, and nothing in the others."""
    types = dict(column.split(" ", 1) for column in ENTRY.split(", "))
    columns = [
        (given[name] if name in given else F.col(name) if name in rows.columns else F.lit(None))
        .cast(types[name])
        .alias(name)
        for name in _NAMES
    ]
    return rows.select(*columns)
