"""Results of a grid in Parquet: nothing runs twice, and nothing half is kept (SPEC T-09)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import wanderbus
from wanderbus.errors import StorageError
from wanderbus.pipeline.grids import GridResults, Point


def rows(point: str, parts: Sequence[str]) -> Iterator[dict[str, object]]:
    return ({"seed": int(point), "size": len(part)} for part in parts)


def results_in(directory: Path) -> GridResults:
    return GridResults(directory / "grid", rows)


def test_outcomes_are_read_as_they_were_stored(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    assert results.read() == {}
    results.append([Point("1", ["a", "bb"], None, 0.5), Point("2", [], "ValueError: no", 0.1)])
    results.append([Point("3", ["ccc"], None, 0.25)])
    assert results.read() == {"1": ["a", "bb"], "3": ["ccc"]}
    assert sorted(path.name for path in results.directory.iterdir()) == ["part-00000.parquet", "part-00001.parquet"]


def test_a_row_has_its_columns_and_those_of_every_grid(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.append([Point("7", ["a", "bb"], None, 0.5)])
    own = {"point": "7", "parts": 2, "taken_s": 0.5, "version": wanderbus.__version__}
    assert pq.read_table(results.directory).to_pylist() == [
        {"seed": 7, "size": 1, "part": 0, "outcome": "a", **own},
        {"seed": 7, "size": 2, "part": 1, "outcome": "bb", **own},
    ]


def test_a_wave_of_failures_makes_no_file(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.append([Point("1", [], "ValueError: no", 0.1)])
    assert not results.directory.exists()


def test_results_of_another_version_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_in(tmp_path)
    monkeypatch.setattr(wanderbus, "__version__", "0.0.9")
    results.append([Point("1", ["old"], None, 0.1), Point("2", ["old"], None, 0.1)])
    monkeypatch.undo()
    assert results.read() == {}
    results.append([Point("1", ["new"], None, 0.1)])
    assert results.read() == {"1": ["new"]}


def test_a_file_that_is_not_whole_is_not_read(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.append([Point("1", ["a"], None, 0.1)])
    (results.directory / ".part-00001.parquet").write_bytes(b"half")
    assert results.read() == {"1": ["a"]}
    (results.directory / "part-00001.parquet").write_bytes(b"half")
    with pytest.raises(StorageError, match="cannot be read"):
        results.read()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "grid").write_text("a file")
    with pytest.raises(StorageError, match=f"the results in {tmp_path / 'grid'} cannot be written"):
        results_in(tmp_path).append([Point("1", ["a"], None, 0.1)])


def test_a_figure_without_a_value_has_the_type_of_other_files(tmp_path: Path) -> None:
    results = GridResults(
        tmp_path / "grid", lambda point, parts: ({"figure": None if point == "1" else 0.5} for _ in parts)
    )
    results.append([Point("1", ["a"], None, 0.5)])
    results.append([Point("2", ["b"], None, 0.5)])
    schema = pq.read_schema(results.directory / "part-00001.parquet")
    whole = pads.dataset(results.directory, schema=schema).to_table()
    assert sorted(whole["figure"].to_pylist(), key=str) == [0.5, None]
    assert "figure" not in pq.read_schema(results.directory / "part-00000.parquet").names
