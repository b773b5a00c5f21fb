"""``python -m faults.lake_job LAKE CHECKPOINTS LOG...``: the job log → lake, which reports its steps until its end.

It prints ``ready``, and then a word before each step: ``write`` and ``commit`` of files, ``compaction`` for the commit
of one, and ``committed`` after each.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from faults.lake_log import DECLARED
from wanderbus.pipeline.lake import Ingestion, writing
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.logs import add_logs
from wanderbus.pipeline.session import spark_session

ROWS_PER_BATCH: Final = 400
SMALL_FILES_MAX: Final = 3
"""So few that almost every batch compacts some table."""

EVERY_S: Final = 0.05


def report_steps() -> None:
    """Let the functions that wait for files and make commits print a line at each step."""
    collected, commit = writing.collected, DeltaTable.create_write_transaction

    def written(results: DataFrame) -> dict[str, writing.WrittenFiles]:
        print("write", flush=True)
        return collected(results)

    def committed(self: DeltaTable, actions: Any, *arguments: Any, **named: Any) -> None:
        print("commit" if named["commit_properties"].app_transactions else "compaction", flush=True)
        commit(self, actions, *arguments, **named)
        print("committed", flush=True)

    writing.collected = written
    DeltaTable.create_write_transaction = committed  # type: ignore[method-assign]


def main(lake: str, checkpoints: str, *logs: str) -> None:
    """Follow the logs until the process ends."""
    report_steps()
    spark, storing = spark_session("wanderbus-lake-job"), threading.Lock()
    identities = [log_identity(Path(log)) for log in logs]
    add_logs(Path(lake), identities)
    for log, identity in zip(logs, identities, strict=True):
        job = Ingestion(
            spark, Path(log), Path(lake), declared=DECLARED, small_files_max=SMALL_FILES_MAX, storing=storing
        )
        job.start(Path(checkpoints) / identity, rows_per_batch=ROWS_PER_BATCH, every_s=EVERY_S)
    print("ready", flush=True)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
