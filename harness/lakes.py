"""Differences between two lakes, row for row, whatever files they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.tables import TABLES, TableSpecification

Rows = Counter[str]


def rows_of(lake: Path, table: TableSpecification) -> Rows:
    """Return the rows of a table, all columns included, each with the number of its occurrences."""
    target = LakeTable(lake, table)
    rows: Rows = Counter()
    if target.exists:
        for file in target.files(target.load()):
            content = pq.ParquetFile(target.directory / file.path).read()
            rows.update(repr(sorted(each.items())) for each in content.to_pylist())
    return rows


def values_of(lake: Path, table: TableSpecification, columns: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the values of some columns, row by row."""
    target = LakeTable(lake, table)
    files = target.files(target.load()) if target.exists else []
    tables = [pq.ParquetFile(target.directory / file.path).read(list(columns)) for file in files]
    return [row for each in tables for row in zip(*(each.column(name).to_pylist() for name in columns), strict=True)]


def differences(one: Path, other: Path) -> dict[str, int]:
    """Return the number of rows that only one of two lakes has, for each table in which there are any."""
    found = {}
    for table in TABLES:
        ours, theirs = rows_of(one, table), rows_of(other, table)
        if count := ((ours - theirs) + (theirs - ours)).total():
            found[table.name] = count
    return found
