"""Files of a table: each has one partition, and together they have every row once (decision 0066)."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wanderbus.pipeline.lake import table_files
from wanderbus.pipeline.lake.compaction import parts_of
from wanderbus.pipeline.lake.table_files import LakeFile, TableFiles
from wanderbus.pipeline.tables import Column, TableSpecification

NUMBERS = TableSpecification(
    name="numbers",
    layer="silver",
    meaning="Numbers.",
    columns=(
        Column("n", "bigint", "a number"),
        Column("last", "string", "its last digits"),
        Column("is_even", "boolean", "it is even"),
    ),
    partitioned_by=("last", "is_even"),
)


def written(directory: Path, batches: int, partitions: int) -> list[LakeFile]:
    """Write ten numbers a batch."""
    files = TableFiles(NUMBERS, directory, "files-1")
    for batch in range(batches):
        numbers = range(batch * 10, batch * 10 + 10)
        columns = {
            "n": numbers,
            "last": [str(n % partitions) for n in numbers],
            "is_even": [n % 2 == 0 for n in numbers],
        }
        files.write(pa.RecordBatch.from_pydict({name: list(values) for name, values in columns.items()}))
    return files.close()


@pytest.mark.parametrize(("partitions", "expected"), [(6, 6), (50, None)])
def test_every_row_is_in_a_file_of_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, expected: int | None
) -> None:
    monkeypatch.setattr(table_files, "BUFFER_BYTES", 500)
    monkeypatch.setattr(table_files, "OPEN_FILES_MAX", 8)
    files = written(tmp_path, 40, partitions)
    assert expected is None or len(files) == expected
    found: list[int] = []
    for file in files:
        rows = pq.read_table(tmp_path / file.path).to_pylist()
        found += [row["n"] for row in rows]
        assert {(row["last"], str(row["is_even"]).lower()) for row in rows} == {tuple(file.partition.values())}
        assert (len(rows), (tmp_path / file.path).stat().st_size) == (file.rows, file.size)
        bounds = msgspec.json.decode(file.statistics)
        assert (bounds["minValues"]["n"], bounds["maxValues"]["n"]) == (
            min(r["n"] for r in rows),
            max(r["n"] for r in rows),
        )
    assert sorted(found) == list(range(400))


def test_a_file_is_durable_when_it_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[str, int] = {}
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced[path] = Path(path).stat().st_size

    monkeypatch.setattr(os, "fsync", watched)
    assert {str(tmp_path / file.path): file.size for file in written(tmp_path, 4, 6)} == synced


def test_rows_are_written_in_large_pieces(tmp_path: Path) -> None:
    (file, *rest) = written(tmp_path, 100, 1)
    assert len(rest) == 1  # even and odd numbers
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == 1


def test_files_to_merge_are_divided_by_size() -> None:
    files = [LakeFile(str(place), size, 1, {}) for place, size in enumerate((40, 50, 20, 90, 10, 80))]
    parts = [[file.size for file in part] for part in parts_of(files, 100)]
    assert parts == [[40, 50], [90, 10]]
