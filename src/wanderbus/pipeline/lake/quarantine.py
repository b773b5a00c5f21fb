"""Rows of the quarantine by the table that did not take them, read and replaced without Spark (SPEC T-03).

Those of the table of records are records that nobody can read. Decoders get no others, so every other row is that of a
readable record of a known kind: the table misses rows, by a fault of the lake or of what wrote the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from wanderbus.pipeline.lake.delta import LakeTable, application_of
from wanderbus.pipeline.lake.table_files import LakeFile
from wanderbus.pipeline.tables import QUARANTINE, RECORDS, TableSpecification
from wanderbus.segments import LogPlace


def quarantined_rows(lake: Path) -> Mapping[str, int]:
    """Return the rows in the quarantine of a lake, by table; none if there is no lake."""
    found: Counter[str] = Counter()
    for file in _files(lake):
        found[file.partition["table"] or ""] += file.rows
    return found


def rejected_records(lake: Path) -> dict[str, int]:
    """Return how many readable records of known kinds each table rejected, without the tables that rejected none."""
    return {name: rows for name, rows in quarantined_rows(lake).items() if name != RECORDS.name}


def replace_rejected(
    lake: Path, table: TableSpecification, files: Sequence[LakeFile], ends: Mapping[str, LogPlace]
) -> None:
    """Let ``files`` be all rows in the quarantine of a table that was made again up to ``ends``, by log identity."""
    removed = [file for file in _files(lake) if file.partition["table"] == table.name]
    if removed or files:
        target = LakeTable(lake, QUARANTINE)
        own = {rejections_of_log(identity, table): end for identity, end in ends.items()}
        target.commit(target.load(), files, removed=removed, ends=own)


def rejections_of_log(identity: str, table: TableSpecification) -> str:
    """Return the application id of the commits of a table's rejected rows to the quarantine."""
    return f"{application_of(identity, QUARANTINE)}/{table.name}"


def _files(lake: Path) -> list[LakeFile]:
    target = LakeTable(lake, QUARANTINE)
    return target.files(target.load()) if target.exists else []
