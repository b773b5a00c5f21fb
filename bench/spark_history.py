"""Subscriptions over history in Spark, beside the index without Spark and joins in SQL (:mod:`bench.spark_joins`).

The workload is ``study`` of :mod:`bench.matching_workload`: 10,000 subscriptions, of which an event matches 29. The
index alone, the *kernel*, gets the Arrow batches that the workers read, by the same function, in this process; runs
of both alternate, because other work on the machine disturbs both. ``places`` and ``ids`` name the form of the
results. Joins take hours for all events, and their time is in proportion to the events. So each join is compared with
a history query of the same first events, in which the fixed cost of a query weighs more than in one of all;
``--whole`` joins all. The session uses Java's optimizing compiler, as the joins need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from bench.matching_workload import DOUBLES, NAMES, STRINGS, WORDS, Workload, workload
from bench.process_times import tree_s
from bench.spark_joins import DuckDB, equi_join, nested_loop, predicates_of
from harness.reporting import Goal, goal, progress
from wanderbus import pipeline
from wanderbus.filters import eci
from wanderbus.pipeline.history import EventFiles, Selection, SubscriptionVersion, count, match, match_places, replay
from wanderbus.pipeline.history.event_files import RowGroups, batches_of
from wanderbus.pipeline.history.matched_rows import matched_batch, matched_places
from wanderbus.pipeline.history.queries import QueryMatcher, queries_of
from wanderbus.pipeline.session import spark_session
from wanderbus.subscription import Frequency, Subscription

EVENTS: Final = 1_000_000
QUICK_EVENTS: Final = 200_000
SUBSCRIPTIONS: Final = 10_000
REPLAYED: Final = 100
"""Subscriptions that are replayed, each with a frequency."""
RUNS: Final = 3
FILES: Final = 8
OPTIMIZED: Final = (
    f"-XX:+UseParallelGC -Dlog4j2.configurationFile={Path(*pipeline.__path__, 'log4j2.properties').as_uri()}"
)
"""Options of Java with its optimizing compiler."""
SHARES: Final = {"equi-join": 0.05, "duckdb": 0.05, "nested loop": 0.001}
"""Shares of the events that are joined."""


class Measured(NamedTuple):
    """Rates of one run, in events a second of all cores, and per second of processor time."""

    way: str
    cores: int
    events: int
    pairs: int | None
    events_per_s: float
    events_per_cpu_s: float


class Table(NamedTuple):
    """The events as files, and the subscriptions."""

    directory: Path
    events: int
    subscriptions: list[Subscription]
    predicates: pa.Table

    @property
    def paths(self) -> list[str]:
        """The files, in order of offset."""
        return sorted(map(str, self.directory.iterdir()))


def measure(work: Path, events: int, whole: bool = False) -> Iterator[Measured]:
    """Measure all ways; with ``whole``, join all events."""
    progress(f"making {events} events and {SUBSCRIPTIONS} subscriptions")
    table = make_table(work, events)
    for cores in (1, 2):
        settings = {"spark.driver.extraJavaOptions": OPTIMIZED}
        spark = spark_session("wanderbus-bench", cores=cores, memory="2g", settings=settings)
        try:
            yield from history(spark, table)
            if cores == 2:
                yield from others(spark, table)
                yield from joins(spark, table, 1.0 if whole else None)
        finally:
            spark.stop()


def goals(results: list[Measured]) -> list[Goal]:
    """Return the goals of history: medians of the ratios of runs that followed each other."""
    found = [
        goal("history_events_per_s", max(_rates(results, "history places", 2)), "1/s"),
        goal("history_vs_kernel", _efficiency(results, "places", 2), "ratio", least=0.8),
        goal("history_vs_equi_join", _beside(results, "equi-join"), "ratio", least=5),
        goal("history_vs_duckdb", _beside(results, "duckdb"), "ratio"),
        goal("history_vs_nested_loop", _beside(results, "nested loop"), "ratio"),
    ]
    for form in ("places", "ids"):
        for cores in (1, 2):
            name = f"history_of_{form}_vs_kernel_on_{cores}"
            found.append(goal(name, _efficiency(results, form, cores), "ratio"))
            found.append(goal(f"{name}_by_processor_time", _efficiency(results, form, cores, is_cpu=True), "ratio"))
    return found


def _beside(results: list[Measured], way: str) -> float:
    """Return the rate of history over that of a join of the same events."""
    [joined] = _rates(results, way, 2)
    [ours] = _rates(results, f"history beside {way}", 2)
    return ours / joined


def _rates(results: list[Measured], way: str, cores: int) -> list[float]:
    return [each.events_per_s for each in results if (each.way, each.cores) == (way, cores)]


def _efficiency(results: list[Measured], form: str, cores: int, *, is_cpu: bool = False) -> float:
    """Return the rate of history for each core over that of the kernel in the run before it: the median."""
    ratios, alone = [], None
    for each in results:
        if each.way == f"kernel {form}":
            alone = each
        elif alone is not None and (each.way, each.cores) == (f"history {form}", cores):
            by_processor = each.events_per_cpu_s / alone.events_per_cpu_s
            ratios.append(by_processor if is_cpu else each.events_per_s / cores / alone.events_per_s)
    return median(ratios)


def make_table(work: Path, events: int) -> Table:
    """Draw the workload, and write the events."""
    drawn = workload("study", SUBSCRIPTIONS, events)
    numbers = np.arange(events)
    own = {"offset": numbers, "at_us": numbers * 1_000, "subject": pa.repeat("S0", events)}
    whole = pa.table({**own, **_event_columns(drawn)})
    directory = work / "events"
    directory.mkdir()
    for number in range(FILES):
        first, stop = events * number // FILES, events * (number + 1) // FILES
        pq.write_table(whole.slice(first, stop - first), directory / f"{number}.parquet")
    subscriptions = [
        Subscription(str(number), "sip:u@d", "s", drawn.subject_of(number), eci.write(drawn.filter(number).root))
        for number in range(len(drawn))
    ]
    return Table(directory, events, subscriptions, predicates_of(drawn))


def _event_columns(drawn: Workload) -> dict[str, pa.Array]:
    columns = {}
    words = pa.array([f"v{code}" for code in range(max(WORDS))])
    for place, name in enumerate(NAMES):
        codes = drawn.encoded[:, place]
        array = pa.array(codes, mask=codes < 0)
        if place < STRINGS:
            columns[name] = words.take(array)
        else:
            columns[name] = array.cast(pa.int64()) if place < DOUBLES else pa.array(codes / 100, mask=codes < 0)
    return columns


# The ways
# ---------------------------------------------------------------------------------------------------------------------


def history(spark: SparkSession, table: Table) -> Iterator[Measured]:
    """Measure history queries and the kernel in turn; the first run of each only warms up."""
    cores = spark.sparkContext.defaultParallelism
    files = EventFiles(spark, table.paths)
    matcher = QueryMatcher(queries_of(table.subscriptions))
    asked = queries_of(table.subscriptions).asked
    batches = [batch for path in table.paths for batch in batches_of(RowGroups(path, 0, 1), Selection(), asked, ())]

    def alone(form: Callable[[QueryMatcher, pa.RecordBatch], pa.RecordBatch], is_reading: bool = False) -> int:
        read = (each for path in table.paths for each in batches_of(RowGroups(path, 0, 1), Selection(), asked, ()))
        return sum(len(form(matcher, each).column(1).values) for each in (read if is_reading else batches))

    queries = {"places": match_places(files, table.subscriptions), "ids": match(files, table.subscriptions)}
    forms = {"places": matched_places, "ids": matched_batch}
    pairs = {_pairs(query) for query in queries.values()} | {alone(form) for form in forms.values()}
    if len(pairs) != 1:
        raise AssertionError(f"the ways find different numbers of pairs: {sorted(pairs)}")
    for _ in range(RUNS):
        yield _here("kernel that reads", table.events, lambda: alone(matched_places, is_reading=True))
        for form, query in queries.items():
            yield _here(f"kernel {form}", table.events, partial(alone, forms[form]))
            yield _in_spark(f"history {form}", cores, query, table.events)


def others(spark: SparkSession, table: Table) -> Iterator[Measured]:
    """Measure the other questions to history, and events that Spark reads itself."""
    files = EventFiles(spark, table.paths)
    rows = spark.read.parquet(str(table.directory))
    versions = [
        SubscriptionVersion(
            Subscription(each.id, "sip:u@d", "s", each.subject, each.expression, restrictions=(Frequency(1.0),))
        )
        for each in table.subscriptions[:REPLAYED]
    ]
    queries = {
        "history counts": count(files, table.subscriptions),
        "history of rows": match_places(rows, table.subscriptions),
        f"replay of {REPLAYED}": replay(files, versions),
    }
    for way, query in queries.items():
        _discard(query)
        yield _in_spark(way, 2, query, table.events)


def joins(spark: SparkSession, table: Table, share: float | None) -> Iterator[Measured]:
    """Measure the joins of the first events, each beside a history query of the same."""
    path = table.directory.with_name("predicates.parquet")
    pq.write_table(table.predicates, path)
    predicates = spark.read.parquet(str(path)).cache()
    ways: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {"equi-join": equi_join, "nested loop": nested_loop}
    for way, its_share in SHARES.items():
        events = int(table.events * (share if share and way != "nested loop" else its_share))
        ours = match_places(EventFiles(spark, table.paths, Selection(to_offset=events)), table.subscriptions)
        found = _pairs(ours)
        yield _in_spark(f"history beside {way}", 2, ours, events)._replace(pairs=found)
        if way == "duckdb":
            engine = DuckDB(table.directory, table.predicates, events, cores=2)
            joined = _here(way, events, engine.pairs)._replace(cores=2)
            engine.close()
        else:
            some = spark.read.parquet(str(table.directory)).where(F.col("offset") < events)
            joined = _joined(way, ways[way](some, predicates), events)
        if joined.pairs != found:
            raise AssertionError(f"{way} finds {joined.pairs} pairs, history {found}")
        yield joined


def _joined(way: str, query: DataFrame, events: int) -> Measured:
    """Join and count the pairs, in one run after one of few events that warms up."""
    _discard(query.where(F.col("offset") < events // 100))
    return _timed(way, 2, events, query.count, _java(query))


def _pairs(query: DataFrame) -> int:
    return int(query.agg(F.sum(F.size("subscriptions"))).collect()[0][0] or 0)


def _discard(query: DataFrame) -> None:
    query.write.format("noop").mode("overwrite").save()


def _in_spark(way: str, cores: int, query: DataFrame, events: int) -> Measured:
    return _timed(way, cores, events, lambda: _discard(query), _java(query))


def _here(way: str, events: int, work: Callable[[], int]) -> Measured:
    return _timed(way, 1, events, work, None)


def _timed(way: str, cores: int, events: int, work: Callable[[], Any], java: int | None) -> Measured:
    """Measure by the clock and by the processor time of Java and its workers, or of this process."""

    def cpu_s() -> float:
        return time.process_time() if java is None else tree_s(java)

    began_s, before_s = time.monotonic(), cpu_s()
    pairs = work()
    taken_s, used_s = time.monotonic() - began_s, cpu_s() - before_s
    return Measured(way, cores, events, pairs, events / taken_s, events / max(used_s, 0.01))


def _java(query: DataFrame) -> int:
    return int(query.sparkSession.sparkContext._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]
