"""Versions of subscriptions with their lifetimes, kept up as the log grows (SPEC T-03)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.lake.records import Columns, Decode, Payloads, Rows
from wanderbus.pipeline.lake_offsets import NUMBER_SHIFT
from wanderbus.pipeline.tables import SUBSCRIPTIONS, Column, TableSpecification
from wanderbus.pipeline.tables.schemas import spark_schema
from wanderbus.records import (
    Changed,
    SessionFenced,
    SessionImported,
    Subscribed,
    Unsubscribed,
    decode_record,
    imported_subscriptions,
)
from wanderbus.subscription import Subscription

SUBSCRIPTION_KINDS: Final = dict.fromkeys(
    ("subscribed", "changed", "unsubscribed", "session_fenced", "session_imported"), SUBSCRIPTIONS.name
)

_STATE: Final = (
    *("owner", "session", "subject", "expression", "language", "format", "device", "expires_us"),
    *("restrictions", "queue"),
)
"""Columns of a version that an end does not have."""

CHANGES: Final = TableSpecification(
    name="subscriptions",
    layer="silver",
    meaning="Changes of subscriptions: new versions, and ends.",
    columns=(
        Column("offset", "bigint", "offset of the record"),
        Column("at_us", "bigint", "time of the record"),
        Column("id", "string", "id of the subscription"),
        Column("end_reason", "string", "reason for the end, if it is one", nullable=True),
        *(msgspec.structs.replace(column, nullable=True) for column in SUBSCRIPTIONS.columns if column.name in _STATE),
    ),
    partitioned_by=(),
)
_json: Final = msgspec.json.Encoder()


def change_decoder() -> Decode:
    """Return a decoder of changes of subscriptions."""

    def rows(payloads: Payloads) -> Rows:
        changes = [
            {"offset": offset, "at_us": at_us, **change}
            for offset, at_us, record in zip(payloads.offsets, payloads.times, payloads.records, strict=True)
            for change in _changes(record)
        ]
        names = ("offset", "at_us", "id", "end_reason", *_STATE)
        columns: Columns = {name: [change.get(name) for change in changes] for name in names}
        return {SUBSCRIPTIONS.name: columns}

    return rows


def lifetimes(live: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the versions that ``changes`` made or ended, and those of ``live`` as they then are.

    ``live`` are rows of the table that have no end. An end ends the version before it; an end without one says nothing.
    A version has the records of one log: a subscription that moves to another server has another one there.
    """
    versions = live.select(
        F.col("from_offset").alias("offset"), F.col("from_us").alias("at_us"), "id", _no_end(), *_STATE
    ).unionByName(changes.select("offset", "at_us", "id", "end_reason", *_STATE))
    own = Window.partitionBy("id", F.shiftright("offset", NUMBER_SHIFT)).orderBy("offset")
    following = F.lead(F.struct("offset", "at_us", F.coalesce("end_reason", F.lit("changed")).alias("reason"))).over(
        own
    )
    rows = versions.withColumn("next", following).where("end_reason is null")
    return rows.select(
        "id",
        F.col("offset").alias("from_offset"),
        F.col("next.offset").alias("to_offset"),
        F.col("at_us").alias("from_us"),
        F.col("next.at_us").alias("to_us"),
        F.col("next.reason").alias("ended"),
        *_STATE,
        F.col("next").isNull().alias("is_live"),
    ).select(*spark_schema(SUBSCRIPTIONS).names)


def _no_end() -> Any:
    return F.lit(None).cast("string").alias("end_reason")


def _changes(payload: bytes) -> list[dict[str, Any]]:
    match decode_record(payload):
        case Subscribed(subscription=subscription) | Changed(subscription=subscription):
            return [_version(subscription)]
        case Unsubscribed(subscription=identifier, reason=reason):
            return [{"id": identifier, "end_reason": reason}]
        case SessionFenced(subscriptions=identifiers):
            return [{"id": identifier, "end_reason": "moved"} for identifier in identifiers]
        case SessionImported(export=export):
            return list(map(_version, imported_subscriptions(export)))
        case other:
            raise TypeError(f"a record of the kind {type(other).__name__} changes no subscription")


def _version(subscription: Subscription) -> dict[str, Any]:
    state = {name: getattr(subscription, name) for name in _STATE}
    for name in ("restrictions", "queue"):
        state[name] = _json.encode(state[name]).decode()
    return {"id": subscription.id, "end_reason": None, **state}
