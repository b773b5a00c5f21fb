"""Latencies and their parts, as exact percentiles for the server, each subject, user and device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

PARTS: Final[Mapping[str, str]] = {
    "accepting": "accepted_us - published_us",
    "matching": "matched_us - accepted_us",
    "away": "away_us",
    "acknowledging": "taken_us - matched_us - away_us",
    "total": "taken_us - coalesce(published_us, accepted_us)",
}
"""Parts in microseconds, as expressions of an acknowledgement."""

PERCENTILES: Final = (0.5, 0.95, 0.99)

_SCOPES: Final[Mapping[str, tuple[str, ...]]] = {
    "server": (),
    "subject": ("subject",),
    "user": ("user",),
    "device": ("user", "device"),
}


def latencies(taken: DataFrame) -> DataFrame:
    """Return for each scope and part the count of acknowledgements that have it, and percentiles in milliseconds.

    ``accepting`` is from the publisher's clock to acceptance by the server's, ``matching`` until the notification was
    generated (0 unless an engine beside the broker matches), ``away`` the time in which the device was
    DISCONNECTED, ``acknowledging`` the rest until the application acknowledged, and ``total`` all of it. A column that
    the scope does not have is null.
    """
    parts = taken.select("subject", "user", "device", *(F.expr(text).alias(name) for name, text in PARTS.items()))
    found = reduce(DataFrame.unionByName, [_of_scope(parts, scope, by) for scope, by in _SCOPES.items()])
    return found.where("acknowledgements > 0")


def _of_scope(parts: DataFrame, scope: str, by: tuple[str, ...]) -> DataFrame:
    measured = [F.struct(F.lit(name).alias("part"), *_measures(name)).alias(name) for name in PARTS]
    rows = parts.groupBy(*by).agg(*measured).withColumn("measure", F.explode(F.array(*PARTS)))
    columns = [(F.col(name) if name in by else F.lit(None).cast("string").alias(name)) for name in _COLUMNS]
    return rows.select(F.lit(scope).alias("scope"), *columns, "measure.*")


_COLUMNS: Final = ("subject", "user", "device")


def _measures(name: str) -> list[Column]:
    shares = F.percentile(name, F.array(*map(F.lit, PERCENTILES)))
    percentiles = [(shares[place] / 1_000).alias(f"p{share * 100:.0f}_ms") for place, share in enumerate(PERCENTILES)]
    return [F.count(name).alias("acknowledgements"), *percentiles, (F.max(name) / 1_000).alias("max_ms")]
