"""Files of events are read in parts, and selected, as rows are."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.history.batches import batch_of
from tests.spark.history.test_queries import expected, subscription
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.pipeline.history import EventFiles, Selection, match, match_places
from wanderbus.pipeline.history.event_files import RowGroups, batches_of
from wanderbus.pipeline.history.queries import QueryMatcher, queries_of
from wanderbus.pipeline.history.spark_batches import in_workers

EVENTS = [Event("ST"[number % 2], {"n": number, "text": f"x{number % 7}", "list": [number]}) for number in range(100)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    batch = batch_of(EVENTS, "typed")
    timed = batch.append_column("at_us", pa.array(range(1_000, 1_100), pa.int64()))
    pq.write_table(pa.Table.from_batches([timed]), tmp_path / "events.parquet", row_group_size=9)
    return str(tmp_path / "events.parquet")


def offsets(path: str, of: int, selection: Selection) -> list[int]:
    parts = [RowGroups(path, number, of) for number in range(of)]
    batches = [batch for part in parts for batch in batches_of(part, selection, frozenset(), [])]
    return sorted(offset for batch in batches for offset in batch.column("offset").to_pylist())


@pytest.mark.parametrize("of", [1, 2, 5, 40])
def test_the_parts_are_the_file(path: str, of: int) -> None:
    assert offsets(path, of, Selection()) == list(range(100))


def test_only_what_is_selected_is_read(path: str) -> None:
    assert offsets(path, 2, Selection("S", 10, 20)) == [10, 12, 14, 16, 18]
    assert offsets(path, 1, Selection(from_us=1_097)) == [97, 98, 99]
    assert offsets(path, 1, Selection(to_us=1_002)) == [0, 1]
    assert offsets(path, 3, Selection("T", offsets=frozenset({3, 4, 99, 100}))) == [3, 99]
    [batch, *_] = batches_of(RowGroups(path, 0, 1), Selection("S"), frozenset({"n", "gone"}), ["at_us"])
    assert set(batch.schema.names) == {"offset", "subject", "n", "attributes", "at_us"}


def test_few_files_have_parts_for_every_core() -> None:
    assert len(EventFiles(None, ["a"]).parts(2)) == 8  # type: ignore[arg-type]
    assert [each.path for each in EventFiles(None, [*"abcdefgh"]).parts(2)] == [*"abcdefgh"]  # type: ignore[arg-type]


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=r"broken\.parquet cannot be read: "):
        list(batches_of(RowGroups(str(broken), 0, 1), Selection(), None, []))


@pytest.mark.spark
def test_files_match_as_rows_do(spark: SparkSession, path: str) -> None:
    wanted = [
        subscription("n", "S", "n > 40"),
        subscription("any", "*", "text == x3"),
        subscription("evaluated", "T", "LENGTH(text) = 2 AND n < 30", "cesql"),
        subscription("list", "*", "list == 7"),
    ]
    rows = match(EventFiles(spark, [path], Selection(from_offset=5)), wanted).collect()
    found = {row.offset: sorted(row.subscriptions) for row in rows}
    assert found == {offset: ids for offset, ids in enumerate(expected(wanted, EVENTS)) if ids and offset >= 5}
    places = {each.id: place for place, each in enumerate(wanted)}
    numbered = match_places(EventFiles(spark, [path], Selection(from_offset=5)), wanted).collect()
    assert {row.offset: sorted(row.subscriptions) for row in numbered} == {
        offset: sorted(places[each] for each in ids) for offset, ids in found.items()
    }


@pytest.mark.spark
def test_workers_keep_what_they_loaded_out_of_the_collection_of_garbage(spark: SparkSession, path: str) -> None:
    def frozen(_: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(map(len, batches))
        yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "rows": [rows]})

    queries = queries_of([subscription("n", "S", "n > 40")])
    rows = in_workers(EventFiles(spark, [path]), queries, frozen, "frozen bigint, rows bigint").collect()
    assert sum(row.rows for row in rows) == len(EVENTS)
    assert min(row.frozen for row in rows) > 10_000


def test_a_process_settles_once() -> None:
    program = (
        "import gc; from wanderbus.pipeline.workers import settle; "
        "settle(); first = gc.get_freeze_count(); more = [[] for _ in range(1000)]; settle(); "
        "assert 0 < gc.get_freeze_count() <= first, (first, gc.get_freeze_count())"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
