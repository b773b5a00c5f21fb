"""A year of flights through log and lake, and each figure of it beside those of pandas and DuckDB.

The 336,776 departures of 2013 go into a log, by its real writer, and from there into a lake. Spark and the history
functions answer from the lake, DuckDB from the lake's files, and pandas from the original file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from bench import flight_turnarounds
from demo import DEPARTURE, flights
from harness.reporting import finish, goal, progress
from tests.published import published
from wanderbus.event import Event, EventId
from wanderbus.pipeline import history
from wanderbus.pipeline.lake import ingest, reconcile, table
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.session import spark_session
from wanderbus.pipeline.tables import named
from wanderbus.pipeline.tables.declared import Declared
from wanderbus.records import Started, encode_record
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.subscription import Subscription

ROWS_A_SYNC: Final = 10_000
SEGMENT_BYTES: Final = 16 << 20
SAMPLE: Final = 100
DECLARED: Final[Declared] = {
    DEPARTURE: {
        **dict.fromkeys(("Row", "Year", "Month", "Day", "Flight", "DepTime", "Distance", "AirTime"), "Integer"),
        **dict.fromkeys(("DepDelay", "ArrDelay"), "Integer"),
        **dict.fromkeys(("Carrier", "Tail", "Origin", "Dest"), "String"),
        "SchedDepAt": "Date",
    }
}
"""Attributes with columns; the others are in the variant."""

QUERIES: Final = {
    "late to Houston": ("DepDelay > 30 and Dest == 'IAH'", "dep_delay > 30 and dest == 'IAH'"),
    "early or far": ("ArrDelay < -20 or Distance >= 2500", "arr_delay < -20 or distance >= 2500"),
    "a tail": ("Tail == 'N14228'", "tailnum == 'N14228'"),
    "in the variant": ("ArrTime < 100", "arr_time < 100"),
}
"""Filter expressions, with the same for pandas."""

BY_CARRIER: Final = (
    "select Carrier, count(*), count(DepDelay), sum(DepDelay), max(ArrDelay), min(ArrDelay), sum(Distance) "
    "from events group by Carrier order by Carrier"
)
BY_DAY: Final = "select Month, Day, count(*), sum(DepDelay) from events group by Month, Day order by Month, Day"

Figures = dict[str, list[tuple[Any, ...]]]


def write_log(directory: Path, rows: int) -> None:
    """Write the first departures of the year as a server does, each at the time at which it was due."""
    log = EventLog.open(directory, segment_bytes_max=SEGMENT_BYTES)
    at_us = 0
    entries = [(0, at_us, encode_record(Started(at_us=at_us, server="wb", incarnation=1)))]
    for row in flights.read_slice(0, rows):
        at_us = max(at_us, int(row["SchedDepAt"].timestamp()) * 1_000_000)  # a log's times do not go back
        number = row["Row"] + 1
        record = published(Event(DEPARTURE, row), id=EventId("wb", 1, number), at_us=at_us, number=number)
        entries.append((number, at_us, encode_record(record)))
        if len(entries) == ROWS_A_SYNC:
            log.append(entries)
            log.sync()
            entries = []
    log.append(entries)
    log.sync()
    log.close()


def of_spark(spark: SparkSession, lake: Path) -> Figures:
    """Return the figures by Spark SQL and by the history functions."""
    events = table(spark, lake, "events")
    events.createOrReplaceTempView("events")
    figures = {name: [tuple(row) for row in spark.sql(sql).collect()] for name, sql in _sql()}
    rows = {row["offset"]: row["Row"] for row in events.select("offset", "Row").collect()}
    wanted = [_subscription(name, expression) for name, (expression, _) in QUERIES.items()]
    found: dict[str, list[int]] = {name: [] for name in QUERIES}
    for offset, names in history.match(events, wanted).collect():
        for name in names:
            found[name].append(rows[offset])
    counts = dict(map(tuple, history.count(events, wanted).collect()))
    for name, matched in found.items():
        figures[name] = [(row,) for row in sorted(matched)]
        figures[f"count of {name}"] = [(counts[name],)]
    figures["sample"] = sorted(_sampled(events, wanted[:1], rows))
    return figures


def of_pandas(path: Path, rows: int, sampled: list[tuple[Any, ...]]) -> Figures:
    """Return the figures by pandas from the original file; a sample must be rows that match, as many as there are."""
    year = pd.read_csv(path, nrows=rows, keep_default_na=False, na_values=["NA", ""])
    delays = year.groupby("carrier", as_index=False).agg(
        **{"n": ("year", "size"), "departed": ("dep_delay", "count"), "delay": ("dep_delay", "sum")},
        **{"most": ("arr_delay", "max"), "least": ("arr_delay", "min"), "miles": ("distance", "sum")},
    )
    days = year.groupby(["month", "day"], as_index=False).agg(n=("year", "size"), delay=("dep_delay", "sum"))
    figures: Figures = {"by carrier": _rows(delays), "by day": _rows(days)}
    for name, (_, condition) in QUERIES.items():
        matched = year.query(condition).index.tolist()
        figures[name] = [(row,) for row in matched]
        figures[f"count of {name}"] = [(len(matched),)]
    late = {row for (row,) in figures[next(iter(QUERIES))]}
    is_sample = len(set(sampled)) == min(SAMPLE, len(late)) and {row for (row,) in sampled} <= late
    figures["sample"] = sampled if is_sample else []
    return figures


def of_duckdb(lake: Path) -> Figures:
    """Return the figures by DuckDB from the lake's files; of matches only what has columns of its own."""
    paths = LakeTable(lake, named("events")).load().file_uris()
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.read_parquet(paths).create_view("events")
        figures: Figures = {name: connection.execute(sql).fetchall() for name, sql in _sql()}
        for name, (expression, _) in QUERIES.items():
            if name != "in the variant":
                sql = f"select Row from events where {expression} order by Row"
                figures[name] = connection.execute(sql).fetchall()
    return figures


def differing(ours: Figures, theirs: Figures) -> list[str]:
    """Return the names of the figures that are not equal, of those that both have."""
    return [name for name, rows in theirs.items() if ours[name] != rows]


def main(arguments: list[str] | None = None) -> int:
    """Make log and lake, compare, and write the report; return the exit status."""
    options = _options(arguments)
    spark = spark_session("wanderbus-flights")
    with tempfile.TemporaryDirectory(prefix="wanderbus-flights-") as work:
        log, lake, began_s = Path(work, "log"), Path(work, "lake"), time.monotonic()
        progress(f"writing a log of {options.rows} flights")
        write_log(log, options.rows)
        progress("filling the lake")
        counts = ingest(spark, log, lake, Path(work, "checkpoint"), declared=DECLARED)
        progress("computing the figures")
        ours = of_spark(spark, lake)
        pandas = of_pandas(flights.data_file(), options.rows, ours["sample"])
        wrong = {"pandas": differing(ours, pandas), "duckdb": differing(ours, of_duckdb(lake))}
        progress("looking for late turnarounds")
        turnarounds, unlike = flight_turnarounds.differences(spark, Path(work, "turnarounds"), options.rows)
        unequal = sum(each.differs for each in reconcile(spark, log, lake))
    events, rejected = counts["events"].rows, sum(each.rejected for each in counts.values())
    taken_s = round(time.monotonic() - began_s, 1)
    print(f"{events} events, {rejected} rejected, {len(ours)} figures, those that differ: {wrong}, {taken_s} s")
    goals = [
        goal("flights_differences", sum(map(len, wrong.values())) + abs(events - options.rows), "figures", most=0),
        goal("pattern_differences", unlike + (not turnarounds), "detections", most=0),
        goal("flights_reconcile_differences", unequal + rejected, "segments", most=0),
    ]
    results = [{"events": events, "figures": len(ours), "wrong": wrong, "turnarounds": turnarounds, "wall_s": taken_s}]
    return finish("bench flights", results, goals, file=options.json, strict=options.strict)


def _sql() -> Iterator[tuple[str, str]]:
    yield "by carrier", BY_CARRIER
    yield "by day", BY_DAY


def _rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    plain = frame.astype(object).where(frame.notna(), None)  # a maximum of nothing is null
    return [tuple(row) for row in plain.itertuples(index=False)]


def _subscription(name: str, expression: str) -> Subscription:
    return Subscription(name, "sip:airline@localhost", "default", DEPARTURE, expression)


def _sampled(events: DataFrame, wanted: list[Subscription], rows: dict[int, int]) -> list[tuple[Any, ...]]:
    return [(rows[row["offset"]],) for row in history.sample(events, wanted, SAMPLE, seed=2013).collect()]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do bench flights", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=flights.FILE_ROWS, metavar="N", help="only the first N flights (default: all)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser.parse_args(arguments)
