"""Logs of several servers of a domain that grow together, with the truth about their events.

Each server accepts events at offsets of its own, so the logs have the same offsets. Some events arrive at other
servers, which deliver them themselves, or leave them to a matching engine.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from faults.lake_log import GrowingLog
from wanderbus.event import EventId
from wanderbus.pipeline.lake import table
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.records import Published

FORWARDED_SHARE: Final = 0.3
"""Share of the events that arrive at a certain other server."""

INCARNATION: Final = 7
"""Incarnation of every log: only the name of the server distinguishes them."""

Row = tuple[object, ...]


class Differences(NamedTuple):
    """Rows that the lake has too many or too few, or of another server than the one that wrote them."""

    events: int
    arrivals: int


class GrowingLogs:
    """The logs of ``servers`` servers below a directory; a single server has its log in ``log``."""

    def __init__(self, directory: Path, random: Random, servers: int) -> None:
        self._random = random
        if servers == 1:
            self.logs = {directory / "log": GrowingLog(directory / "log", random)}
        else:
            names = [f"s{number}" for number in range(1, servers + 1)]
            self.logs = {
                directory / name / "log": GrowingLog(directory / name / "log", random, name, INCARNATION)
                for name in names
            }
        for own in self.logs.values():
            own.on_event = self._on_event

    @property
    def records(self) -> int:
        """Number of records of all logs."""
        return sum(each.records for each in self.logs.values())

    def grow(self, count: int) -> None:
        """Write ``count`` records to each log, and make them durable."""
        for each in self.logs.values():
            each.grow(count)

    def close(self) -> None:
        """Close the logs."""
        for each in self.logs.values():
            each.close()

    def _on_event(self, source: GrowingLog, record: Published) -> None:
        for each in self.logs.values():
            if each is not source and self._random.random() < FORWARDED_SHARE:
                each.receive(source.server, record)

    def differences(self, spark: SparkSession, lake: Path) -> Differences:
        """Compare the events of the lake, and the notifications of arrivals, with what was written to which log."""
        bases = logs_in(lake).bases

        def offset(identity: EventId) -> int:
            return bases[f"{identity.origin}-{identity.incarnation}"] + identity.number

        events: Counter[Row] = Counter()
        arrivals: Counter[Row] = Counter()
        for log in self.logs.values():
            events.update((offset(each), each.origin, each.incarnation, each.number) for each in log.accepted)
            base = bases[log.identity]
            arrivals.update((base + at, user, offset(each)) for at, user, each in log.arrivals)
        of_events = table(spark, lake, "events").select("offset", "server", "incarnation", "number")
        of_arrivals = table(spark, lake, "notifications").where(F.col("event_offset").isNotNull())
        of_arrivals = of_arrivals.select("offset", "user", "event_offset")
        return Differences(_differing(events, of_events), _differing(arrivals, of_arrivals))


def _differing(expected: Counter[Row], rows: DataFrame) -> int:
    found = Counter(tuple(each) for each in rows.collect())
    return sum(((expected - found) + (found - expected)).values())
