"""Compaction and vacuum: small files become large ones, and files that no version needs go (SPEC T-03)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.lake.delta import ATTEMPT, PART, LakeFile, LakeTable
from wanderbus.pipeline.tables import Table

FILE_BYTES: Final = 128 << 20
"""Size that a file grows to; files of half of it are not compacted."""

SMALL_FILES_MAX: Final = 32
"""Small files of a partition from which on a job compacts a table by itself."""

RETENTION_HOURS: Final = 168
"""Hours for which files of earlier versions are kept; as long can these versions be read."""

_HOUR_S: Final = 3_600


class Compacted(NamedTuple):
    """Number of files that a compaction replaced, and of those that it made."""

    removed: int
    added: int


def compact(
    spark: SparkSession, lake: Path, table: Table, *, file_bytes: int = FILE_BYTES, files_min: int = 2
) -> Compacted:
    """Merge the small files of each partition that has at least ``files_min`` of them; the rows stay the same."""
    target = LakeTable(lake, table).as_it_is()
    delta = target.load()
    removed: list[LakeFile] = []
    added: list[LakeFile] = []
    for group in small_files(target.files(delta), file_bytes):
        if len(group) >= files_min:
            count = -(-sum(file.size for file in group) // file_bytes)
            removed += group
            added += target.write(target.rows(spark, group).coalesce(count).withColumn(PART, F.lit("compacted")))
    if removed:
        target.commit(delta, added, removed=removed)
    return Compacted(len(removed), len(added))


def small_files(files: Iterable[LakeFile], file_bytes: int = FILE_BYTES) -> list[list[LakeFile]]:
    """Return the files of less than half of ``file_bytes``, by partition."""
    groups: dict[tuple[str | None, ...], list[LakeFile]] = {}
    for file in files:
        if file.size < file_bytes // 2:
            groups.setdefault(tuple(file.partition.values()), []).append(file)
    return list(groups.values())


def vacuum(lake: Path, table: Table, *, retention_hours: int = RETENTION_HOURS) -> int:
    """Remove files that no version of the last ``retention_hours`` needs, and those of attempts that were killed.

    Returns the number of files removed. A job that runs longer than ``retention_hours`` would lose its files.
    """
    target = LakeTable(lake, table)
    delta = target.load()
    removed = len(delta.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False, full=True))
    return removed + _remove_attempts(target, delta, time.time() - retention_hours * _HOUR_S)


def _remove_attempts(target: LakeTable, delta: DeltaTable, before_s: float) -> int:
    """Remove directories without a live file that nothing has changed since: Delta passes over their hidden files."""
    live = {file.path.partition("/")[0] for file in target.files(delta)}
    removed = 0
    for attempt in target.directory.glob(f"{ATTEMPT}*"):
        files = [path for path in attempt.rglob("*") if path.is_file()]
        is_needed = any(path.suffix == ".parquet" and not _is_hidden(path, attempt) for path in files)
        newest_s = max((path.stat().st_mtime for path in [attempt, *files]), default=0.0)
        if attempt.name not in live and not is_needed and newest_s <= before_s:
            removed += len(files)
            shutil.rmtree(attempt)
    return removed


def _is_hidden(path: Path, attempt: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(attempt).parts)
