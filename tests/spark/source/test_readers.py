"""Readers of the source without Spark: batch = stream = what was written, and pushdown changes nothing (SPEC T-02)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as sql
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

from tests.published import published
from tests.spark.source.record_strategies import records
from wanderbus.errors import LogCorrupt
from wanderbus.event import Event
from wanderbus.pipeline.source import segment_index
from wanderbus.pipeline.source.columns import log_schema
from wanderbus.pipeline.source.log_source import FilteringLogReader, LogSourceReader, LogStreamReader
from wanderbus.pipeline.source.options import LogOptions
from wanderbus.pipeline.source.pushdown import Pushed
from wanderbus.pipeline.source.record_columns import KINDS, json_of
from wanderbus.records import Acknowledged, Published, Record, Subscribed, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name
from wanderbus.subscription import Subscription

Row = dict[str, Any]
Reader = LogSourceReader | LogStreamReader

START_US = 1_700_000_000_000_000


def write(directory: Path, payloads: Sequence[tuple[int, bytes]], per_segment: int) -> LogOptions:
    for first in range(0, len(payloads), per_segment):
        part = payloads[first : first + per_segment]
        packed = b"".join(pack_frame(offset, at_us, payload) for offset, (at_us, payload) in enumerate(part, first))
        (directory / segment_name(first)).write_bytes(HEADER + packed)
    (directory / HIGH_WATER).write_bytes(pack_mark(len(payloads)))
    return LogOptions(path=directory, rows_per_partition=7)


def rows_of(reader: Reader, partitions: Iterable[sql.InputPartition]) -> list[Row]:
    return [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def expected(offset: int, record: Record) -> Row:
    """Return the row of a record, from the record itself."""
    fields = msgspec.structs.asdict(record)
    source = fields.get("subscription")
    row = dict.fromkeys(log_schema().names) | {"offset": offset, "at_us": record.at_us, "record": encode_record(record)}
    row["kind"] = str(record.__struct_config__.tag)
    if isinstance(record, Published):
        fields = msgspec.structs.asdict(record.acceptance)
        row["subject"] = record.event.subject
    if source is not None and not isinstance(source, str):
        fields = msgspec.structs.asdict(source) | {"user": source.owner}
        row["subject"] = source.subject
    return row | {name: fields[name] for name in ("user", "session", "device", "subject") if name in fields}


def streamed(options: LogOptions, limit: ReadMaxRows | ReadMaxBytes) -> Iterator[Row]:
    """Yield the rows of a stream whose every micro-batch is read by a new reader, as after a restart."""
    start = LogStreamReader(options, log_schema()).initialOffset()
    while True:
        reader = LogStreamReader(options, log_schema())
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(start, limit)
        if end == start:
            return
        yield from rows_of(reader, reader.partitions(start, end))
        start = end


@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=30), st.integers(1, 12), st.integers(1, 9), st.integers(1, 2_000))
def test_batch_and_stream_are_what_was_written(
    written: list[Record], per_segment: int, rows_max: int, bytes_max: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        payloads = [(record.at_us, encode_record(record)) for record in written]
        options = write(Path(directory), payloads, per_segment)
        wanted = [expected(offset, record) for offset, record in enumerate(written)]
        batch = LogSourceReader(options, log_schema())
        assert rows_of(batch, batch.partitions()) == wanted
        assert list(streamed(options, ReadMaxRows(rows_max))) == wanted
        assert list(streamed(options, ReadMaxBytes(bytes_max))) == wanted


@given(records)
def test_every_record_has_a_text_in_json(record: Record) -> None:
    assert json.loads(json_of(encode_record(record)))["kind"] == record.__struct_config__.tag


def test_every_kind_of_record_is_generated() -> None:
    assert len(records.branches) == len(KINDS)


# Pushdown ------------------------------------------------------------------------------------------------------------


def some_records(count: int) -> list[Record]:
    made: list[Record] = []
    for number in range(count):
        at_us = START_US + number * 1_000
        match number % 3:
            case 0:
                made.append(published(event(number), at_us=at_us, number=number))
            case 1:
                made.append(Acknowledged(at_us=at_us, user="sip:b@b", session="s", device="d", number=number))
            case _:
                made.append(Subscribed(at_us=at_us, subscription=subscription(number), number=number))
    return made


def event(number: int) -> Event:
    return Event("Departure" if number % 2 else "Arrival", {"Row": number})


def subscription(number: int) -> Subscription:
    return Subscription(f"n-{number}", "sip:c@b", "default", "Departure", "")


columns = st.sampled_from(["offset", "at_us", "kind", "subject", "user", "session"])
values = {
    "offset": st.integers(-5, 1_300),
    "at_us": st.integers(START_US - 5_000, START_US + 1_300_000),
    "kind": st.sampled_from(["published", "subscribed", "acknowledged", "left"]),
    "subject": st.sampled_from(["Departure", "Arrival", ""]),
    "user": st.sampled_from(["sip:a@b", "sip:c@b", "sip:"]),
    "session": st.sampled_from(["s", "default", "sip"]),
}


@st.composite
def filters(draw: st.DrawFn) -> sql.Filter:
    column = draw(columns)
    comparisons: list[type[Any]] = [
        *(sql.EqualTo, sql.EqualNullSafe, sql.GreaterThan, sql.GreaterThanOrEqual),
        *(sql.LessThan, sql.LessThanOrEqual, sql.In, sql.IsNull, sql.IsNotNull),
    ]
    if column not in ("offset", "at_us"):
        comparisons += [sql.StringStartsWith, sql.StringEndsWith, sql.StringContains]
    comparison = draw(st.sampled_from(comparisons))
    made: sql.Filter
    if comparison in (sql.IsNull, sql.IsNotNull):
        made = comparison((column,))
    elif comparison is sql.In:
        made = sql.In((column,), tuple(draw(st.lists(values[column], max_size=3))))
    else:
        made = comparison((column,), draw(values[column]))
    return sql.Not(made) if draw(st.booleans()) else made


def holds(each: sql.Filter, row: Row) -> bool | None:
    """Return whether a filter holds in SQL's logic of three values, as Spark defines it."""
    if isinstance(each, sql.Not):
        inner = holds(each.child, row)
        return None if inner is None else not inner
    value = row[each.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(each, sql.IsNull | sql.IsNotNull):
        return (value is None) == isinstance(each, sql.IsNull)
    other = each.value  # type: ignore[attr-defined]
    if isinstance(each, sql.EqualNullSafe):
        return bool(value == other)
    if value is None:
        return None
    results: dict[type[Any], Callable[[], bool]] = {
        sql.EqualTo: lambda: value == other,
        sql.GreaterThan: lambda: value > other,
        sql.GreaterThanOrEqual: lambda: value >= other,
        sql.LessThan: lambda: value < other,
        sql.LessThanOrEqual: lambda: value <= other,
        sql.In: lambda: value in other,
        sql.StringStartsWith: lambda: value.startswith(other),
        sql.StringEndsWith: lambda: value.endswith(other),
        sql.StringContains: lambda: other in value,
    }
    return results[type(each)]()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogOptions:
    """A log of 1,200 records in three segments; later records are not always of a later time."""
    made = [(record.at_us, encode_record(record)) for record in some_records(1_200)]
    made[600:700] = reversed(made[600:700])
    return write(tmp_path_factory.mktemp("log"), made, per_segment=400)


@pytest.fixture(scope="module")
def everything(log: LogOptions) -> list[Row]:
    reader = LogSourceReader(log, log_schema())
    return rows_of(reader, reader.partitions())


@settings(max_examples=150, deadline=None)
@given(pushed=st.lists(filters(), max_size=3))
def test_pushdown_returns_the_rows_that_spark_would_keep(
    log: LogOptions, everything: list[Row], pushed: list[sql.Filter]
) -> None:
    reader = FilteringLogReader(log, log_schema())
    left = list(reader.pushFilters(pushed))
    kept = [row for row in rows_of(reader, reader.partitions()) if all(holds(each, row) for each in left)]
    assert kept == [row for row in everything if all(holds(each, row) for each in pushed)]


def test_filters_on_other_columns_and_types_are_left_to_spark() -> None:
    left = [
        sql.EqualTo(("record",), b"x"),
        sql.EqualTo(("error", "reason"), "x"),
        sql.EqualTo(("offset",), 1.5),
        sql.GreaterThan(("offset",), True),
        sql.In(("kind",), ("published", None)),
        sql.StringStartsWith(("offset",), "1"),
        sql.IsNull(("error",)),
    ]
    own = [sql.EqualTo(("offset",), 1), sql.Not(sql.IsNull(("kind",)))]
    pushed, found = Pushed.parse([*left, *own])
    assert found == left
    assert pushed.columns == {"offset", "kind"}


@pytest.mark.parametrize(
    ("pushed", "count", "share"),
    [
        ([sql.GreaterThanOrEqual(("offset",), 1_150)], 50, 0.06),
        ([sql.EqualTo(("offset",), 3)], 1, 0.01),
        ([sql.LessThan(("at_us",), START_US + 100_000)], 100, 0.25),
        ([sql.GreaterThan(("at_us",), START_US + 2_000_000)], 0, 0.0),
        ([sql.EqualTo(("kind",), "acknowledged"), sql.GreaterThan(("offset",), 1_000)], 66, 0.2),
    ],
)
def test_pushdown_reads_fewer_bytes(
    log: LogOptions, monkeypatch: pytest.MonkeyPatch, pushed: list[sql.Filter], count: int, share: float
) -> None:
    """Counted where the tasks read; planning reads the heads of the frames beside that."""

    def read_bytes(reader: LogSourceReader) -> tuple[int, int]:
        reader_partitions = reader.partitions()
        counted = 0

        class Counting:
            def __init__(self, file: Any) -> None:
                self._file = file

            def __enter__(self) -> Counting:
                return self

            def __exit__(self, *error: object) -> None:
                self._file.close()

            def seek(self, byte: int) -> None:
                self._file.seek(byte)

            def read(self, size: int) -> bytes:
                nonlocal counted
                data: bytes = self._file.read(size)
                counted += len(data)
                return data

        opened = segment_index.opened
        with monkeypatch.context() as patch:
            patch.setattr("wanderbus.pipeline.source.log_files.opened", lambda path: Counting(opened(path)))
            return len(rows_of(reader, reader_partitions)), counted

    _, whole = read_bytes(LogSourceReader(log, log_schema()))
    reader = FilteringLogReader(log, log_schema())
    assert list(reader.pushFilters(pushed)) == []
    found, fewer = read_bytes(reader)
    assert found == count
    assert fewer <= share * whole


def test_planning_by_offset_opens_only_the_segments_concerned(log: LogOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Path.open

    def spy(path: Path, *arguments: Any, **named: Any) -> Any:
        opened.append(path.name)
        return real(path, *arguments, **named)

    reader = FilteringLogReader(log, log_schema())
    assert list(reader.pushFilters([sql.GreaterThanOrEqual(("offset",), 900)])) == []
    monkeypatch.setattr(Path, "open", spy)
    reader.partitions()
    assert {name for name in opened if name.endswith(".seg")} == {segment_name(800)}


# Records that cannot be read ----------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_decoded_is_a_row_with_an_error(tmp_path: Path) -> None:
    good = encode_record(some_records(1)[0])
    odd = [b"\x81\xa4kind\xa5later", b"\xc1", b"\x80", b"\x82\xa4kind\xa4left\xa5at_us\xa1x", good[:-1]]
    payloads = [good, *odd, good]
    options = write(tmp_path, [(number, payload) for number, payload in enumerate(payloads)], 100)
    reader = LogSourceReader(options, log_schema())
    rows = rows_of(reader, reader.partitions())
    assert [row["record"] for row in rows] == payloads
    assert [row["at_us"] for row in rows] == list(range(7))
    assert [row["kind"] for row in rows] == ["published", *[None] * 5, "published"]
    errors = [row["error"] for row in rows]
    assert (errors[0], errors[6]) == (None, None)
    byte = len(HEADER)
    for number, (error, reason) in enumerate(
        zip(
            errors[1:6],
            [
                "a record of the unknown kind 'later'",
                "not a record: MessagePack data is malformed",
                "a record without a kind",
                "not a record: Expected `int | null`, got `str` - at `$.at_us`",
                "not a record: Input data was truncated",
            ],
            strict=True,
        )
    ):
        byte += 24 + len(payloads[number])
        assert error["reason"].startswith(reason)
        assert error["path"] == str(tmp_path / segment_name(0))
        assert error["byte"] == byte


def test_offsets_alone_need_no_reading_unless_a_damaged_record_shall_stop(tmp_path: Path) -> None:
    payloads = [(START_US, encode_record(published(Event("A", {}), at_us=START_US, number=each))) for each in range(9)]
    log = write(tmp_path, payloads, per_segment=4)
    data = bytearray((tmp_path / segment_name(4)).read_bytes())
    data[-1] ^= 0xFF
    (tmp_path / segment_name(4)).write_bytes(data)
    reader = LogSourceReader(log, log_schema("offset"))
    assert rows_of(reader, reader.partitions()) == [{"offset": offset} for offset in range(9)]
    strict = LogSourceReader(msgspec.structs.replace(log, is_failfast=True), log_schema("offset"))
    with pytest.raises(LogCorrupt, match="is damaged at byte"):
        rows_of(strict, strict.partitions())
    filtering = FilteringLogReader(log, log_schema("offset"))
    assert list(filtering.pushFilters([sql.GreaterThan(("offset",), 6)])) == []
    assert rows_of(filtering, filtering.partitions()) == [{"offset": 7}, {"offset": 8}]


def test_attributes_that_are_none_are_an_error_of_their_row_alone(tmp_path: Path) -> None:
    """The head is sound, the content is not: only who asks for the content sees it."""
    good = encode_record(some_records(1)[0])
    odd = [
        msgspec.msgpack.encode(
            {
                **{"kind": "published", "at_us": 5},
                "acceptance": {"event": {"subject": "S", "attributes": each}, "user": "u", "device": "d"},
            }
        )
        for each in (7, {"a": {"b": 1}})
    ]
    options = write(tmp_path, [(1, payload) for payload in (good, *odd)], 100)
    plain = LogSourceReader(options, log_schema("kind", "error"))
    assert rows_of(plain, plain.partitions()) == [{"kind": "published", "error": None}] * 3
    decoding = LogSourceReader(options, log_schema("kind", "attributes", "error"))
    rows = rows_of(decoding, decoding.partitions())
    assert [row["attributes"] is None for row in rows] == [False, True, True]
    assert rows[0]["error"] is None
    assert rows[1]["error"]["reason"].startswith("not an event: Expected `object`, got `int`")
    assert rows[2]["error"]["reason"] == "not an event: an attribute of the type dict"


def test_json_needs_the_whole_record(tmp_path: Path) -> None:
    """A field that no column needs is wrong."""
    payload = msgspec.msgpack.encode({"kind": "left", "at_us": 1, "user": "u", "session": "s", "device": "d"})
    options = write(tmp_path, [(1, payload)], 100)
    reader = LogSourceReader(options, log_schema("kind", "json", "error"))
    [row] = rows_of(reader, reader.partitions())
    assert (row["kind"], row["json"]) == ("left", None)
    assert row["error"]["reason"] == "not a record: Object missing required field `reason`"
