"""Rates of the data pipeline: the source alone, on one core and on two; its steps in one process; and log → lake.

The log holds as many acknowledgements as events, an event having fifteen attributes and three notifications, as in the
demonstration. Rates are records a second of a warm session, the best of some runs; the sink discards the rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench import (
    engine_conformance,
    spark_cluster,
    spark_engine,
    spark_grid,
    spark_history,
    spark_patterns,
    spark_plan,
)
from bench.process_times import tree_s
from bench.spark_lake import lake_rates
from harness.reporting import Goal, finish, goal, progress
from tests.published import published
from wanderbus.event import Event
from wanderbus.pipeline.session import spark_session
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.source.frames import RecordFrames
from wanderbus.pipeline.source.log_files import LogFiles, read_slice
from wanderbus.pipeline.source.log_source import LogSourceReader
from wanderbus.pipeline.source.options import LogOptions
from wanderbus.pipeline.source.record_columns import content_of, heads_of, is_published, json_of
from wanderbus.pipeline.source.variants import variant_of
from wanderbus.records import Acknowledged, Notified, Record, decode_record, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

RECORDS: Final = 1_000_000
QUICK_RECORDS: Final = 200_000
RUNS: Final = 3
SEGMENT_BYTES: Final = 64 << 20
START_US: Final = 1_700_000_000_000_000

COLUMNS: Final = {
    "records": (),
    "attributes": ("offset", "at_us", "kind", "user", "subject", "published_us", "attributes", "record", "error"),
    "json": ("offset", "at_us", "kind", "user", "session", "device", "subject", "json", "error"),
    "heads": ("offset", "at_us", "kind", "user", "session", "device", "subject"),
}
"""Choices of columns; the first is the source's own."""

_ATTRIBUTES: Final = {
    **{"Year": 2013, "Month": 1, "Day": 1, "DepTime": 517, "DepDelay": 2.0, "ArrTime": 830, "ArrDelay": 11.0},
    **{"Carrier": "UA", "Flight": 1545, "TailNum": "N14228", "Origin": "EWR", "Dest": "IAH", "AirTime": 227.0},
    **{"Distance": 1400, "Cancelled": False},
}


class Measured(NamedTuple):
    """One rate, and the same per second of processor time, which other work on the machine disturbs less."""

    step: str
    cores: int
    columns: str
    records_per_s: float
    records_per_cpu_s: float


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the rates and write the report; return the exit status."""
    options = _options(arguments)
    count = options.records or (QUICK_RECORDS if options.quick else RECORDS)
    if options.section == "history":
        return _history(options)
    if options.section == "cluster":
        return _cluster(options)
    if options.section == "grid":
        return _grid(options)
    if options.section == "plan":
        return _plan(options)
    if options.section == "engine":
        return _engine(options)
    if options.section == "patterns":
        return _patterns(options)
    if options.section == "lake":
        return _lake(options, count)
    results: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as work:
        log = Path(work)
        progress(f"writing a log of {count} records")
        write_log(log, count)
        for each in steps(log, min(count, QUICK_RECORDS)):
            _show(results, each)
        for cores in (1, 2):
            for each in spark_source(log, cores, count):
                _show(results, each)
    goals = _goals(results)
    return finish("bench spark", [each._asdict() for each in results], goals, file=options.json, strict=options.strict)


def _lake(options: argparse.Namespace, count: int) -> int:
    """Measure the job log → lake beside the source alone, on one core and on two (:mod:`bench.spark_lake`)."""
    results: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as work:
        log = Path(work)
        progress(f"writing a log of {count} records")
        write_log(log, count)
        for cores in (1, 2):
            for each in spark_source(log, cores, count, ("records",)):
                _show(results, each)
            progress("ingesting the log into lakes")
            for rate in lake_rates(log, count, cores):
                _show(results, Measured("lake", cores, rate.tables, rate.records_per_s, rate.records_per_cpu_s))
    rows = [each._asdict() for each in results]
    goals = _lake_goals(results)
    return finish("bench spark lake", rows, goals, file=options.json, strict=options.strict)


def _lake_goals(results: list[Measured]) -> list[Goal]:
    rates = _best(results)
    whole = rates["lake", 2, "bronze and silver"]
    return [
        goal("lake_rows_per_s", whole, "1/s", least=100_000),
        goal("lake_bronze_rows_per_s", rates["lake", 2, "bronze"], "1/s"),
        goal("lake_one_core_rows_per_s", rates["lake", 1, "bronze and silver"], "1/s"),
        goal("lake_two_cores_vs_one", whole / rates["lake", 1, "bronze and silver"], "ratio"),
        goal("lake_source_alone_rows_per_s", rates["source", 2, "records"], "1/s"),
    ]


def _cluster(options: argparse.Namespace) -> int:
    """Measure a cluster (:mod:`bench.spark_cluster`)."""
    count = options.records or (QUICK_RECORDS if options.quick else RECORDS)
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as work:
        log = Path(work, "log")
        log.mkdir()
        progress(f"writing a log of {count} records")
        write_log(log, count)
        results = spark_cluster.measure(log, Path(work), count)
    rows = [each._asdict() for each in results.rates]
    goals = spark_cluster.goals(results)
    return finish("bench spark cluster", rows, goals, file=options.json, strict=options.strict)


def _grid(options: argparse.Namespace) -> int:
    """Measure grids of experiments (:mod:`bench.spark_grid`)."""
    results = spark_grid.measure(spark_grid.QUICK_SEEDS if options.quick else spark_grid.SEEDS)
    rows = [each._asdict() for each in results]
    goals = spark_grid.goals(results)
    return finish("bench spark grid", rows, goals, file=options.json, strict=options.strict)


def _plan(options: argparse.Namespace) -> int:
    """Measure plans (:mod:`bench.spark_plan`)."""
    count = options.records or (spark_plan.QUICK_RECORDS if options.quick else spark_plan.RECORDS)
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as work:
        results = spark_plan.measure(Path(work), count)
    rows = [{**each._asdict(), "max_load_vs_hash": each.max_load_vs_hash} for each in results.plans]
    goals = spark_plan.goals(results)
    return finish("bench spark plan", rows, goals, file=options.json, strict=options.strict)


def _patterns(options: argparse.Namespace) -> int:
    """Measure live patterns (:mod:`bench.spark_patterns`)."""
    count = options.records or (spark_patterns.QUICK_EVENTS if options.quick else spark_patterns.EVENTS)
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as work:
        results = list(spark_patterns.measure(Path(work), count))
    rows = [{**each._asdict(), "vs_automaton": each.vs_automaton} for each in results]
    goals = spark_patterns.goals(results)
    return finish("bench spark patterns", rows, goals, file=options.json, strict=options.strict)


def _engine(options: argparse.Namespace) -> int:
    """Measure the matching engine (:mod:`bench.spark_engine`)."""
    count = options.records or (spark_engine.QUICK_EVENTS if options.quick else spark_engine.EVENTS)
    results: list[spark_engine.Measured] = []
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as work:
        for each in spark_engine.measure(Path(work), count):
            results.append(each)
            print(f"{each.way:12} {each.events:>9,} events {each.events_per_s:>9,.0f} events/s", flush=True)
        failed = engine_conformance.failed(Path(work))
    goals = spark_engine.goals(results, failed)
    rows = [each._asdict() for each in results]
    return finish("bench spark engine", rows, goals, file=options.json, strict=options.strict)


def _history(options: argparse.Namespace) -> int:
    """Measure history (:mod:`bench.spark_history`)."""
    count = options.records or (spark_history.QUICK_EVENTS if options.quick else spark_history.EVENTS)
    results: list[spark_history.Measured] = []
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as work:
        for each in spark_history.measure(Path(work), count, options.whole):
            results.append(each)
            rates = f"{each.events_per_s:>12,.0f} events/s {each.events_per_cpu_s:>12,.0f} per s of processor"
            print(f"{each.way:26} on {each.cores} {rates} {each.events:>12,} events", flush=True)
    goals = spark_history.goals(results)
    rows = [each._asdict() for each in results]
    return finish("bench spark history", rows, goals, file=options.json, strict=options.strict)


def records(count: int) -> Iterator[Record]:
    """Yield events and acknowledgements in turn."""
    for number in range(count):
        at_us = START_US + number * 1_000
        if number % 2:
            user = f"sip:user{number % 1_000}@localhost"
            yield Acknowledged(at_us=at_us, user=user, session="default", device="urn:uuid:d", number=number)
            continue
        yield published(
            Event("Departure", {**_ATTRIBUTES, "Flight": number}, published_us=at_us - 500),
            at_us=at_us,
            user="sip:airline@localhost",
            device="urn:uuid:0f8fad5b-d9cb-469f-a165-70867728950e",
            epoch=1,
            number=number,
            notified=tuple(
                Notified(f"sip:user{(number + each) % 1_000}@localhost", "default", number, (f"north-{each}",))
                for each in range(3)
            ),
        )


def write_log(directory: Path, count: int) -> None:
    """Write a log as a server does."""
    first, parts, size = 0, [HEADER], 0
    for offset, record in enumerate(records(count)):
        frame = pack_frame(offset, record.at_us, encode_record(record))
        if size + len(frame) > SEGMENT_BYTES:
            (directory / segment_name(first)).write_bytes(b"".join(parts))
            first, parts, size = offset, [HEADER], 0
        parts.append(frame)
        size += len(frame)
    (directory / segment_name(first)).write_bytes(b"".join(parts))
    (directory / HIGH_WATER).write_bytes(pack_mark(count))


def steps(log: Path, count: int) -> Iterator[Measured]:
    """Measure the source's steps one by one, by processor time, in this process."""
    parts = LogFiles(log).slices(0, count, 50_000)
    groups: list[RecordFrames] = []

    def read() -> None:
        groups[:] = [group for part in parts for group in read_slice(part)]

    yield _step("index", count, lambda: LogFiles(log).slices(0, count, 50_000))
    yield _step("frames", count, read)
    heads = [heads_of(group.payloads, {}) for group in groups]
    events = [
        payload
        for group, its_heads in zip(groups, heads, strict=True)
        for payload, head in zip(group.payloads, its_heads, strict=True)
        if payload is not None and is_published(head)
    ]
    payloads = [payload for group in groups for payload in group.payloads if payload is not None]
    contents = [content_of(payload).attributes for payload in events]
    yield _step("heads", count, lambda: [heads_of(group.payloads, {}) for group in groups])
    yield _step("whole records", count, lambda: _discard_each(decode_record, payloads))
    yield _step("json", count, lambda: _discard_each(json_of, payloads))
    yield _step("event contents", len(events), lambda: _discard_each(content_of, events))
    yield _step("variants", len(events), lambda: _discard_each(variant_of, contents))
    for name, columns in COLUMNS.items():
        reader = LogSourceReader(LogOptions(path=log), log_schema(*columns))
        yield _step("reader", count, partial(_read, reader, len(parts)), name)


def _read(reader: LogSourceReader, partitions: int) -> None:
    for part in reader.partitions()[:partitions]:
        for _ in reader.read(part):
            pass


def spark_source(log: Path, cores: int, count: int, choices: Iterable[str] = tuple(COLUMNS)) -> Iterator[Measured]:
    """Measure the source in Spark on so many cores, with these choices of columns."""
    spark = spark_session("wanderbus-bench", cores=cores, memory="2g")
    try:
        for name in choices:
            table = spark.read.format(FORMAT).schema(log_schema(*COLUMNS[name])).load(str(log))
            yield _in_spark(spark, "source", name, table, count)
        yield _in_spark(spark, "pushdown", "records", _minute(spark, log), count)
    finally:
        spark.stop()


def _minute(spark: SparkSession, log: Path) -> DataFrame:
    """Return the events of one subject of one minute."""
    table = spark.read.format(FORMAT).load(str(log))
    return table.where(f"subject = 'Departure' and at_us between {START_US} and {START_US + 60_000_000}")


def _in_spark(spark: SparkSession, step: str, columns: str, table: DataFrame, count: int) -> Measured:
    """Measure a query, by the clock and by the processor time of Java and its Python processes."""
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]
    rates, cpu_rates = [], []
    for _ in range(RUNS):
        began_s, cpu_s = time.monotonic(), tree_s(java)
        table.write.format("noop").mode("overwrite").save()
        rates.append(count / (time.monotonic() - began_s))
        cpu_rates.append(count / max(tree_s(java) - cpu_s, 0.01))
    return Measured(step, spark.sparkContext.defaultParallelism, columns, max(rates), max(cpu_rates))


def _goals(results: list[Measured]) -> list[Goal]:
    rates = _best(results)
    one, two = rates["source", 1, "records"], rates["source", 2, "records"]
    return [
        goal("source_rows_per_s", two, "1/s", least=200_000),
        goal("source_attributes_rows_per_s", rates["source", 2, "attributes"], "1/s", least=100_000),
        goal("source_two_cores_vs_one", two / one, "ratio"),
    ]


def _best(results: list[Measured]) -> dict[tuple[str, int, str], float]:
    """Return the best rate by step, cores and columns."""
    rates: dict[tuple[str, int, str], float] = {}
    for each in results:
        key = each.step, each.cores, each.columns
        rates[key] = max(rates.get(key, 0.0), each.records_per_s)
    return rates


def _step(name: str, count: int, work: Callable[[], object], columns: str = "") -> Measured:
    rate = count / min(_processor_s(work) for _ in range(RUNS))
    return Measured(name, 1, columns, rate, rate)


def _discard_each(work: Callable[[Any], object], values: Iterable[Any]) -> None:
    """Discard each result at once, as a reader does, so that collecting garbage costs nothing."""
    for value in values:
        work(value)


def _processor_s(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def _show(results: list[Measured], each: Measured) -> None:
    results.append(each)
    where = f"{each.step} {each.columns}".strip()
    rates = f"{each.records_per_s:>12,.0f} records/s {each.records_per_cpu_s:>12,.0f} per s of processor"
    print(f"{where:20} on {each.cores} {rates}", flush=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do bench spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "section",
        nargs="?",
        choices=("source", "lake", "history", "cluster", "grid", "plan", "engine", "patterns"),
        default="source",
        help="what to measure (source)",
    )
    parser.add_argument("--quick", action="store_true", help=f"a log of {QUICK_RECORDS} records, not {RECORDS}")
    parser.add_argument("--records", type=int, metavar="N", help="a log of so many records")
    parser.add_argument("--whole", action="store_true", help="history: join all events, which takes hours")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser.parse_args(arguments)
