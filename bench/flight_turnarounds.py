"""Late turnarounds in a year of flights: a pattern over a log on Spark, beside pandas over the original file.

Each flight is two events at its real times: ``departure`` and ``arrival``. A late turnaround is an arrival more than 30
minutes late, and then the next departure of the same aircraft that is more than 15 minutes late, within three hours:
the file has departures from New York alone, to which the aircraft has to come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pyspark.sql import SparkSession

from demo import flights
from tests.published import published
from wanderbus.event import Event, EventId
from wanderbus.patterns import compile_pattern
from wanderbus.pipeline.patterns import detect
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.records import encode_record
from wanderbus.runtime.log.event_log import EventLog

PATTERN: Final = """
pattern late_turnaround by Tail
match A: arrival (ArrDelay > 30) then B: departure (DepDelay > 15)
within 3 hours
"""
WITHIN: Final = pd.Timedelta(hours=3)
ROWS_A_SYNC: Final = 20_000

Turnarounds = list[tuple[int, int]]
"""Rows of the flight that arrived and of the one that departed."""


def differences(spark: SparkSession, log: Path, rows: int) -> tuple[int, int]:
    """Return how many turnarounds pandas finds, and how many either it or Spark has alone."""
    expected = of_pandas(flights.data_file(), rows)
    return len(expected), len(set(expected) ^ set(of_spark(spark, log, rows)))


def of_spark(spark: SparkSession, log: Path, rows: int) -> Turnarounds:
    """Return the turnarounds by the pattern, from a log that is written first."""
    row_of = _write_log(log, rows)
    columns = log_schema("offset", "at_us", "kind", "subject", "record")
    events = spark.read.format(FORMAT).schema(columns).load(str(log)).where("kind = 'published'")
    found = detect(events, compile_pattern(PATTERN)).select("events.offset").collect()
    return sorted((row_of[arrived], row_of[departed]) for ((arrived, departed),) in found)


def of_pandas(path: Path, rows: int) -> Turnarounds:
    """Return the turnarounds by pandas from the original file."""
    year = pd.read_csv(path, nrows=rows, keep_default_na=False, na_values=["NA", ""])
    scheduled = pd.to_datetime(year["time_hour"], utc=True) + pd.to_timedelta(year["minute"], "min")
    year["at"] = scheduled + pd.to_timedelta(year["dep_delay"], "min")
    year["row"] = year.index
    known = year.dropna(subset=["tailnum", "at"])
    departures = known[known["dep_delay"] > 15]
    arrivals = known[known["arr_delay"] > 30].dropna(subset=["air_time"])
    arrivals = arrivals.assign(at=arrivals["at"] + pd.to_timedelta(arrivals["air_time"], "min"))
    joined = pd.merge_asof(
        *(each.sort_values(["at", "row"])[["at", "row", "tailnum"]] for each in (arrivals, departures)),
        on="at",
        by="tailnum",
        tolerance=WITHIN,
        direction="forward",
        suffixes=("", "_departed"),
    ).dropna()
    return sorted(zip(joined["row"].tolist(), joined["row_departed"].astype(int).tolist(), strict=True))


def _write_log(directory: Path, rows: int) -> dict[int, int]:
    """Write departures and arrivals in order of time; return the row of each offset."""
    events = sorted(_events(rows), key=lambda each: (each[0], each[1].subject, each[1].attributes["Row"]))
    log = EventLog.open(directory)
    for first in range(0, len(events), ROWS_A_SYNC):
        log.append(
            [
                (
                    offset,
                    at_us,
                    encode_record(published(event, id=EventId("wb", 1, offset), at_us=at_us, number=offset)),
                )
                for offset, (at_us, event) in enumerate(events[first : first + ROWS_A_SYNC], first)
            ]
        )
        log.sync()
    log.close()
    return {offset: event.attributes["Row"] for offset, (_, event) in enumerate(events)}


def _events(rows: int) -> Iterator[tuple[int, Event]]:
    for row in flights.read_slice(0, rows):
        if not {"Tail", "SchedDepAt", "DepDelay"} <= row.keys():
            continue
        departed = row["SchedDepAt"] + timedelta(minutes=row["DepDelay"])
        yield _event("departure", departed, row, "DepDelay")
        if {"AirTime", "ArrDelay"} <= row.keys():
            yield _event("arrival", departed + timedelta(minutes=row["AirTime"]), row, "ArrDelay")


def _event(subject: str, at: Any, row: dict[str, Any], delay: str) -> tuple[int, Event]:
    attributes = {name: row[name] for name in ("Tail", "Row", delay)}
    return int(at.timestamp()) * 1_000_000, Event(subject, attributes)
