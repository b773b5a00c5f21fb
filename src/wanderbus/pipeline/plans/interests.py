"""Interest in each subject, before and after covering and merging, counted by the workers subject by subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.history import changes_in, versions_of
from wanderbus.pipeline.history.domain_lakes import DomainLake, lakes_of, passing_users
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.workers import settle
from wanderbus.planning import SubjectInterest
from wanderbus.planning.interest import interest_of

PARTS_A_CORE: Final = 8
"""Groups of subjects for each core, so that a large subject does not delay others."""

_COLUMNS: Final = ("subject", "expression", "language")
_SUBSCRIPTIONS: Final = "subject string, expression string, language string"
_INTERESTS: Final = pa.schema(
    [("subject", pa.string()), *((name, pa.int64()) for name in SubjectInterest.__struct_fields__)]
)


def lake_subscriptions(spark: SparkSession, lake: Path | Sequence[DomainLake]) -> DataFrame:
    """Return the live subscriptions of a lake, or of several; ``StorageError`` if there is none.

    Those of several lakes are the ones of users: not those by which one of these domains gets events of another one.
    """
    lakes = lakes_of(lake)
    live = [
        table(spark, each.path, "subscriptions")
        .where(F.col("is_live") & ~F.col("owner").isin(passing_users(each, lakes)))
        .select("owner", "id", *_COLUMNS)
        for each in lakes
    ]
    every = reduce(DataFrame.unionByName, live)
    # A session that has moved may be live in the lake of its former domain too, which is behind.
    return (every.dropDuplicates(["owner", "id"]) if len(lakes) > 1 else every).select(*_COLUMNS)


def log_records(spark: SparkSession, log: Path) -> DataFrame:
    """Return the records of a server's log that plans need."""
    columns = log_schema("offset", "at_us", "kind", "subject", "record")
    return spark.read.format(FORMAT).schema(columns).load(str(log.absolute()))


def log_subscriptions(records: DataFrame) -> DataFrame:
    """Return the subscriptions that are live at the end of records of the source."""
    live = [each.subscription for each in versions_of(changes_in(records)) if each.to_offset is None]
    rows = [(each.subject, each.expression, each.language) for each in live]
    return records.sparkSession.createDataFrame(rows, _SUBSCRIPTIONS)


def interests(subscriptions: DataFrame) -> dict[str, SubjectInterest]:
    """Return the interest by subject in ``subscriptions``: their ``subject``, ``expression`` and ``language``.

    Equal subscriptions are parsed once. All subscriptions to one subject are merged by one worker, which has those of
    its part of the subjects in memory.
    """
    counted = subscriptions.groupBy(*_COLUMNS).agg(F.count("*").alias("several"))
    parts = PARTS_A_CORE * subscriptions.sparkSession.sparkContext.defaultParallelism
    names = SubjectInterest.__struct_fields__
    schema = "subject string, " + ", ".join(f"{name} bigint" for name in names)
    rows = counted.repartition(parts, "subject").mapInArrow(_interests, schema).collect()
    return {row["subject"]: SubjectInterest(**{name: row[name] for name in names}) for row in rows}


def _interests(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    by_subject: dict[str, list[tuple[str, str, int]]] = {}
    for batch in batches:
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in (*_COLUMNS, "several")]
        for subject, *subscription in zip(*columns, strict=True):
            by_subject.setdefault(subject, []).append((subscription[0], subscription[1], subscription[2]))
    rows = [{"subject": subject, **msgspec.structs.asdict(interest_of(its))} for subject, its in by_subject.items()]
    yield pa.RecordBatch.from_pylist(rows, schema=_INTERESTS)
