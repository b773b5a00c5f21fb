"""Status of a lake, read without Spark: offsets, files, quarantine, misfits and the last run (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from wanderbus.pipeline.lake.compaction import small_files
from wanderbus.pipeline.lake.delta import LakeTable, application_of, committed, misfits_in
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.pipeline.lake.quarantine import quarantined_rows
from wanderbus.pipeline.lake.reading import existing_tables
from wanderbus.pipeline.lineage import JobRun, runs
from wanderbus.pipeline.operation.lake_lock import is_locked
from wanderbus.pipeline.tables import QUARANTINE, TableSpecification


class TableStatus(msgspec.Struct, frozen=True):
    """Status of one table.

    :param offset: offset up to which it has the log; None for the quarantine, which has rows of the other tables
    :param quarantined: rows that it did not take
    :param misfits: values of declared attributes in its rows with another type
    """

    name: str
    version: int
    offset: int | None
    lag: int | None
    rows: int
    files: int
    small_files: int
    bytes: int
    quarantined: int
    misfits: int


class LakeStatus(msgspec.Struct, frozen=True):
    """Status of a lake, one of whose logs has ``durable`` records; ``is_changing`` while a job has its lock.

    Offsets and lags of tables are those of this log; rows, files and all others are of the whole lake.
    """

    directory: str
    log: str
    durable: int
    is_changing: bool
    last_run: JobRun | None
    tables: Sequence[TableStatus]


def lake_status(lake: Path, durable: int, log: str | None = None) -> LakeStatus:
    """Return the status of a lake for the log with an identity, the first one of the lake by default.

    Raises ``StorageError`` if there is no lake, if it does not have this log, or if a table cannot be read.
    """
    found = existing_tables(lake)
    logs = logs_in(lake)
    log = log or logs.first
    logs.base(log)
    past = runs(lake)
    quarantined = quarantined_rows(lake)
    tables = [_table(lake, table, log, durable, quarantined) for table in found]
    return LakeStatus(str(lake), log, durable, is_locked(lake), past[-1] if past else None, tables)


def _table(
    lake: Path, table: TableSpecification, log: str, durable: int, quarantined: Mapping[str, int]
) -> TableStatus:
    target = LakeTable(lake, table)
    delta = target.load()
    files = target.files(delta)
    offset = None if table == QUARANTINE else committed(delta, application_of(log, table)) or 0
    return TableStatus(
        name=table.name,
        version=delta.version(),
        offset=offset,
        lag=None if offset is None else durable - offset,
        rows=sum(file.rows for file in files),
        files=len(files),
        small_files=sum(map(len, small_files(files))),
        bytes=sum(file.size for file in files),
        quarantined=quarantined.get(table.name, 0),
        misfits=misfits_in(delta),
    )
