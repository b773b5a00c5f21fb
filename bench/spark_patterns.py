"""A live pattern on Spark, beside its automaton alone on one core, on the streams of :mod:`bench.patterns`.

The stream is a log that a query reads from its begin, in batches of 100,000 records, up to its end: source,
classification, state with checkpoints, and the detections to the driver. The automaton alone gets the events classified
before, in memory, by wall time just before each run. The first run of a session, of a short log, is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from bench.patterns import PATTERN, detections_of, make_stream
from bench.process_times import tree_s
from harness.reporting import Goal, goal, median, progress
from tests.published import published
from wanderbus.event import EventId
from wanderbus.patterns import AcceptedEvent, Counts, Detection, Pattern, compile_pattern
from wanderbus.pipeline.engine import SETTINGS
from wanderbus.pipeline.patterns import LivePattern
from wanderbus.pipeline.session import spark_session
from wanderbus.records import Record, Started, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

EVENTS: Final = 1_000_000
QUICK_EVENTS: Final = 200_000
WARM_EVENTS: Final = 5_000
RUNS: Final = 3
STREAMS: Final = {"keyed": 0.0, "skewed": 0.25}
"""Streams, and the share of their events that one aircraft has."""


class Measured(NamedTuple):
    """One run over a stream, on two cores, and the automaton alone before it, on one."""

    stream: str
    events: int
    detections: int
    differences: int
    events_per_s: float
    events_per_cpu_s: float
    automaton_per_s: float

    @property
    def vs_automaton(self) -> float:
        """Rate on Spark over that of the automaton alone."""
        return self.events_per_s / self.automaton_per_s


def measure(work: Path, events: int) -> Iterator[Measured]:
    """Measure all streams, some runs each."""
    pattern = compile_pattern(PATTERN)
    spark = spark_session("wanderbus-bench", memory="2g", settings=SETTINGS)
    try:
        warm = make_stream(WARM_EVENTS, 0.0).occurrences
        progress("warming the session")
        _detected(spark, write_log(work / "warm", warm), work / "warm-checkpoint", pattern)
        for stream, skew in STREAMS.items():
            progress(f"{stream} stream of {events} events")
            occurrences = make_stream(events, skew).occurrences
            log = write_log(work / stream, occurrences)
            for run in range(RUNS):
                yield _measured(spark, stream, occurrences, log, work / f"{stream}-{run}", pattern)
    finally:
        spark.stop()


def goals(results: Sequence[Measured]) -> list[Goal]:
    """Return the figures: the medians of the runs."""
    found = [goal("live_pattern_differences", sum(each.differences for each in results), "detections", most=0)]
    for stream in STREAMS:
        own = [each for each in results if each.stream == stream]
        found += [
            goal(f"live_{stream}_pattern_events_per_s", median([each.events_per_s for each in own]), "1/s"),
            goal(f"live_{stream}_pattern_events_per_cpu_s", median([each.events_per_cpu_s for each in own]), "1/s"),
            goal(f"live_{stream}_pattern_vs_automaton", median([each.vs_automaton for each in own]), "ratio"),
        ]
    return found


def write_log(directory: Path, occurrences: Sequence[AcceptedEvent]) -> Path:
    """Write the log of a server that received these events."""
    directory.mkdir()
    records: list[Record] = [Started(at_us=0, server="s", incarnation=1)]
    records += [
        published(each.event, number=each.offset, id=EventId("s", 1, each.offset), at_us=each.received_us)
        for each in occurrences
    ]
    frames = [pack_frame(offset, each.at_us, encode_record(each)) for offset, each in enumerate(records)]
    (directory / segment_name(0)).write_bytes(HEADER + b"".join(frames))
    (directory / HIGH_WATER).write_bytes(pack_mark(len(records)))
    return directory


def _measured(
    spark: SparkSession, stream: str, occurrences: list[AcceptedEvent], log: Path, checkpoint: Path, pattern: Pattern
) -> Measured:
    seen = pattern.classify(occurrences)
    started = time.perf_counter()
    alone = detections_of(pattern, seen)
    alone_s = time.perf_counter() - started
    started, started_cpu_s = time.perf_counter(), tree_s(os.getpid())
    found = _detected(spark, log, checkpoint, pattern)
    took_s, took_cpu_s = time.perf_counter() - started, tree_s(os.getpid()) - started_cpu_s
    end_us = occurrences[-1].received_us
    expected = {_events(each) for each in alone if each.at_us < end_us // 1_000 * 1_000}
    count = len(occurrences)
    return Measured(
        stream,
        count,
        len(found),
        len(expected ^ {_events(each) for each in found}),
        count / took_s,
        count / took_cpu_s,
        len(seen) / alone_s,
    )


def _events(detection: Detection) -> tuple[str, ...]:
    """Return the events of a detection by their ids: a record's offset is one more than its event's."""
    return tuple(each.id for each in detection.events)


def _detected(spark: SparkSession, log: Path, checkpoint: Path, pattern: Pattern) -> list[Detection]:
    found: list[Detection] = []

    def take(_: int, detections: Sequence[Detection], refused: Counts) -> None:
        found.extend(detections)
        assert refused == Counts()

    LivePattern(spark, log, checkpoint, pattern, take).run()
    return found
