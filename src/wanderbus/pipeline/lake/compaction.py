"""Compaction and vacuum: small files become large ones, and files that no version needs go (SPEC T-03)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.table_files import ATTEMPT, LakeFile, new_attempt
from wanderbus.pipeline.lake.writing import merge, run
from wanderbus.pipeline.tables import TableSpecification

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
    spark: SparkSession, lake: Path, table: TableSpecification, *, file_bytes: int = FILE_BYTES, files_min: int = 2
) -> Compacted:
    """Merge the small files of each partition that has at least ``files_min`` of them; the rows stay the same.

    Raises ``StorageError``, and changes nothing, if the number of rows would not stay the same.
    """
    target = LakeTable(lake, table).as_it_is()
    delta = target.load()
    groups = [
        part
        for group in small_files(target.files(delta), file_bytes)
        if len(group) >= files_min
        for part in parts_of(group, file_bytes)
    ]
    if not groups:
        return Compacted(0, 0)
    attempt = new_attempt()
    written = run(spark, [partial(merge, target.table, target.directory, attempt, group) for group in groups])
    removed, added = [file for group in groups for file in group], written[table.name].files
    before, after = (sum(file.rows for file in files) for files in (removed, added))
    if before != after:
        target.discard(added)
        raise StorageError(
            f"{target.directory} has {before} rows to compact, but {after} were written; nothing changes"
        )
    target.commit(delta, added, removed=removed)
    return Compacted(len(removed), len(added))


def small_files(files: Iterable[LakeFile], file_bytes: int = FILE_BYTES) -> list[list[LakeFile]]:
    """Return the files of less than half of ``file_bytes``, by partition."""
    groups: dict[tuple[str | None, ...], list[LakeFile]] = {}
    for file in files:
        if file.size < file_bytes // 2:
            groups.setdefault(tuple(file.partition.values()), []).append(file)
    return list(groups.values())


def parts_of(files: Iterable[LakeFile], file_bytes: int) -> list[list[LakeFile]]:
    """Divide files into groups of at most ``file_bytes``, without those of a single file."""
    groups: list[list[LakeFile]] = []
    room = 0
    for file in files:
        if not groups or file.size > room:
            groups.append([])
            room = file_bytes
        groups[-1].append(file)
        room -= file.size
    return [group for group in groups if len(group) > 1]


def vacuum(lake: Path, table: TableSpecification, *, retention_hours: int = RETENTION_HOURS) -> int:
    """Remove files that no version of the last ``retention_hours`` needs, and those of attempts that were killed.

    Returns the number of files removed. A job that runs longer than ``retention_hours`` would lose its files.
    """
    target = LakeTable(lake, table)
    delta = target.load()
    removed = len(delta.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False, full=True))
    _remove_attempts(target, time.time() - retention_hours * _HOUR_S)
    return removed


def _remove_attempts(target: LakeTable, before_s: float) -> None:
    """Remove the directories that are empty by now; a new one may get files yet."""
    for attempt in target.directory.glob(f"{ATTEMPT}*"):
        if attempt.stat().st_mtime <= before_s and not any(attempt.iterdir()):
            attempt.rmdir()
