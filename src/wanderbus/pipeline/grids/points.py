"""Points of a grid run by the workers of Spark: a text with parameters and seed in, the texts of its outcome out.

A task has one point, so that all cores end at about the same time. The points run in waves, so that what is finished
can be stored before the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from wanderbus.pipeline.workers import settle

POINTS_A_CORE: Final = 32
"""Points of a wave for each core."""

_POINTS: Final = "place bigint, point string"
_OUTCOMES: Final = "place bigint, parts array<string>, error string, taken_s double"

Work = Callable[[str], Sequence[str]]
"""Function from a point to the parts of its outcome; the workers must be able to import it."""


class Point(NamedTuple):
    """A point that has run: the parts of its outcome, or the error that ended it."""

    point: str
    parts: list[str]
    error: str | None
    taken_s: float
    """Processor time of the worker."""


def run_points(
    spark: SparkSession, work: Work, points: Sequence[str], *, points_a_core: int = POINTS_A_CORE
) -> Iterator[list[Point]]:
    """Run ``work`` for each of the points, and yield them in waves, each in the order of ``points``.

    An error of a point is in its row, and ends no other point. A point that ends its whole process ends the job.
    """
    context = spark.sparkContext
    size = max(1, points_a_core * context.defaultParallelism)
    run = _in_worker(work)
    for start in range(0, len(points), size):
        wave = list(enumerate(points[start : start + size]))
        rows = spark.createDataFrame(context.parallelize(wave, len(wave)), _POINTS)
        found = sorted(rows.mapInArrow(run, _OUTCOMES).collect(), key=lambda row: int(row.place))
        yield [Point(wave[row.place][1], list(row.parts or ()), row.error, row.taken_s) for row in found]


def _in_worker(work: Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in batches:
            yield pa.RecordBatch.from_pylist([_outcome(work, row) for row in batch.to_pylist()], schema=_schema())

    return run


def _outcome(work: Work, row: dict[str, Any]) -> dict[str, Any]:
    began_s = time.process_time()
    parts: Sequence[str] | None = None
    error = None
    try:
        parts = list(work(row["point"]))
    except Exception as failure:
        error = f"{type(failure).__name__}: {' '.join(str(failure).split())}"
    return {"place": row["place"], "parts": parts, "error": error, "taken_s": time.process_time() - began_s}


def _schema() -> pa.Schema:
    fields = [
        ("place", pa.int64()),
        ("parts", pa.list_(pa.string())),
        ("error", pa.string()),
        ("taken_s", pa.float64()),
    ]
    return pa.schema(fields)
