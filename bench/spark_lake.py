"""Rates of the job log → lake: the bronze tables alone, and with the silver tables.

A run ingests the whole log into an empty lake, in the session that users get. A first run warms it up.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.process_times import tree_s
from wanderbus.pipeline.lake import ingest
from wanderbus.pipeline.session import spark_session
from wanderbus.pipeline.tables.declared import Declared

RUNS: Final = 3
DECLARED: Final[Declared] = {
    "Departure": {
        **dict.fromkeys(("Year", "Month", "Day", "DepTime", "ArrTime", "Flight", "Distance"), "Integer"),
        **dict.fromkeys(("DepDelay", "ArrDelay", "AirTime"), "Double"),
        **dict.fromkeys(("Carrier", "TailNum", "Origin", "Dest"), "String"),
        "Cancelled": "Boolean",
    }
}
"""All attributes of the events but one have columns of their own."""


class LakeRate(NamedTuple):
    """Rate of one run over the whole log, by the clock and by processor time."""

    tables: str
    records_per_s: float
    records_per_cpu_s: float


def lake_rates(log: Path, count: int, cores: int) -> Iterator[LakeRate]:
    """Measure the job, each choice of tables in a session that is warm."""
    spark = spark_session("wanderbus-bench", cores=cores)
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]
    try:
        for tables, has_silver in (("bronze", False), ("bronze and silver", True)):
            for run in range(RUNS + 1):
                with tempfile.TemporaryDirectory(prefix="wanderbus-lake-") as work:
                    began_s, cpu_s = time.monotonic(), tree_s(java)
                    lake, checkpoint = Path(work, "lake"), Path(work, "checkpoint")
                    counts = ingest(spark, log, lake, checkpoint, declared=DECLARED, has_silver=has_silver)
                    taken_s, used_s = time.monotonic() - began_s, tree_s(java) - cpu_s
                if counts["records"].rows != count:
                    raise AssertionError(f"the lake has {counts['records'].rows} records, not {count}")
                if run:
                    yield LakeRate(tables, count / taken_s, count / used_s)
    finally:
        spark.stop()
