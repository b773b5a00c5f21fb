"""Subscriptions over history, beside the same in SQL: in Spark by equi-joins and by a nested loop, and in DuckDB.

The workload is ``study`` of :mod:`bench.matching_workload`. An equi-join takes from each subscription the equality
whose string has most values; subscriptions without one go through a nested loop. The joins are measured on the first
events alone, since all would take hours. The bare kernel is fed with the same Arrow batches in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from bench.matching_workload import DOMAIN, DOUBLES, NAMES, STRINGS, WORDS, Workload, workload
from harness.reporting import Goal, goal, progress
from wanderbus.filters import eci
from wanderbus.pipeline.history import EventFiles, match
from wanderbus.pipeline.history.matches import matched_batch
from wanderbus.pipeline.history.queries import Matcher, queries_of
from wanderbus.pipeline.session import spark_session
from wanderbus.subscription import Subscription

EVENTS: Final = 1_000_000
QUICK_EVENTS: Final = 200_000
SUBSCRIPTIONS: Final = 10_000
CORES: Final = 2
RUNS: Final = 3
FILES: Final = 8
BATCH_ROWS: Final = 10_000
"""Rows of the batches that Spark gives to Python."""

JOINED_SHARE: Final = {"equi-join": 0.1, "nested loop": 0.002, "duckdb": 0.02}
"""Shares of the events that the joins are measured on."""


class Measured(NamedTuple):
    """Rate of one way, in events a second of all cores, and per second of processor time."""

    way: str
    cores: int
    events: int
    pairs: int
    events_per_s: float
    events_per_cpu_s: float


class Table(NamedTuple):
    """The events as files, and the subscriptions."""

    directory: Path
    events: int
    subscriptions: list[Subscription]
    predicates: pa.Table
    """A row for each subscription: what it asks of each attribute, null for nothing."""


def measure(work: Path, events: int, cpu_s: Callable[[int], float]) -> Iterator[Measured]:
    """Measure all ways; ``cpu_s`` returns the processor time of a process and its descendants."""
    progress(f"making {events} events and {SUBSCRIPTIONS} subscriptions")
    table = make_table(work, events)
    yield bare_kernel(table)
    spark = spark_session("wanderbus-bench", cores=CORES, memory="2g")
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]
    try:
        predicates = _saved(spark, table)
        files = EventFiles(spark, sorted(map(str, table.directory.iterdir())))
        yield _in_spark("history", match(files, table.subscriptions), events, lambda: cpu_s(java))
        ways: dict[str, Callable[[DataFrame], DataFrame]] = {
            "history of rows": lambda some: match(some, table.subscriptions),
            "equi-join": lambda some: equi_join(some, predicates),
            "nested loop": lambda some: nested_loop(some, predicates),
        }
        for way, query in ways.items():
            count = int(events * JOINED_SHARE.get(way, 1.0))
            some = spark.read.parquet(str(table.directory)).where(F.col("offset") < count)
            yield _in_spark(way, query(some), count, lambda: cpu_s(java))
    finally:
        spark.stop()
    yield in_duckdb(table)


def goals(results: list[Measured]) -> list[Goal]:
    """Return the goals of history."""
    rates = {each.way: each.events_per_s for each in results}
    return [
        goal("history_events_per_s", rates["history"], "1/s"),
        goal("history_vs_kernel", rates["history"] / CORES / rates["kernel"], "ratio", least=0.8),
        goal("history_vs_equi_join", rates["history"] / rates["equi-join"], "ratio", least=5),
        goal("history_vs_nested_loop", rates["history"] / rates["nested loop"], "ratio"),
        goal("history_vs_duckdb", rates["history"] / rates["duckdb"], "ratio"),
    ]


def make_table(work: Path, events: int) -> Table:
    """Draw the workload, and write the events."""
    drawn = workload("study", SUBSCRIPTIONS, events)
    whole = pa.table({"offset": np.arange(events), "subject": pa.repeat("S0", events), **_event_columns(drawn)})
    directory = work / "events"
    directory.mkdir()
    for number in range(FILES):
        first, stop = events * number // FILES, events * (number + 1) // FILES
        pq.write_table(whole.slice(first, stop - first), directory / f"{number}.parquet")
    subscriptions = [
        Subscription(str(number), "sip:u@d", "s", drawn.subject_of(number), eci.write(drawn.filter(number).root))
        for number in range(len(drawn))
    ]
    return Table(directory, events, subscriptions, _predicates(drawn))


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


def _predicates(drawn: Workload) -> pa.Table:
    """Return for each subscription the ends of its ranges; a string has its only value in the lower one."""
    conjunction = np.repeat(np.arange(len(drawn)), np.diff(drawn.start))
    columns: dict[str, Any] = {"id": np.arange(len(drawn)).astype(str), "key": _keys(drawn, conjunction)}
    for place, name in enumerate(NAMES):
        low, high = np.full(len(drawn), -1), np.full(len(drawn), -1)
        its = drawn.attribute == place
        low[conjunction[its]], high[conjunction[its]] = drawn.low[its], drawn.high[its]
        if place < STRINGS:
            columns[name] = pa.array([f"v{code}" if code >= 0 else None for code in low.tolist()], pa.string())
            continue
        unit = 1 if place < DOUBLES else 100
        kind = pa.int64() if place < DOUBLES else pa.float64()
        columns[f"{name}_low"] = pa.array(low / unit, mask=low <= 0).cast(kind)
        columns[f"{name}_high"] = pa.array(high / unit, mask=(high < 0) | (high >= DOMAIN - 1)).cast(kind)
    return pa.table(columns)


def _keys(drawn: Workload, conjunction: Any) -> Any:
    """Return for each subscription its string attribute with most values, or -1."""
    keys = np.full(len(drawn), -1)
    strings = drawn.attribute < STRINGS
    np.maximum.at(keys, conjunction[strings], drawn.attribute[strings])
    return keys


# The ways
# ---------------------------------------------------------------------------------------------------------------------


def bare_kernel(table: Table) -> Measured:
    """Feed the index with the Arrow batches, in this process."""
    matcher = Matcher(queries_of(table.subscriptions))
    batches = list(_batches(table))
    pairs = 0
    rates, cpu_rates = [], []
    for _ in range(RUNS):
        began_s, cpu_s, pairs = time.monotonic(), time.process_time(), 0
        for batch in batches:
            pairs += len(matched_batch(matcher, batch).column("subscriptions").values)
        rates.append(table.events / (time.monotonic() - began_s))
        cpu_rates.append(table.events / (time.process_time() - cpu_s))
    return Measured("kernel", 1, table.events, pairs, max(rates), max(cpu_rates))


def _batches(table: Table) -> Iterator[pa.RecordBatch]:
    for number in range(FILES):
        yield from pq.read_table(table.directory / f"{number}.parquet").to_batches(max_chunksize=BATCH_ROWS)


def _saved(spark: SparkSession, table: Table) -> DataFrame:
    path = table.directory.with_name("predicates.parquet")
    pq.write_table(table.predicates, path)
    return spark.read.parquet(str(path)).cache()


def _asked(keyed: str | None) -> str:
    """Return the condition of a match in SQL, for events ``e`` and predicates ``p``; ``keyed`` is asked elsewhere."""
    parts = []
    for place, name in enumerate(NAMES):
        if name == keyed:
            continue
        if place < STRINGS:
            parts.append(f"(p.{name} is null or e.{name} = p.{name})")
        else:
            parts.append(f"(p.{name}_low is null or e.{name} >= p.{name}_low)")
            parts.append(f"(p.{name}_high is null or e.{name} <= p.{name}_high)")
            parts.append(f"(e.{name} is not null or coalesce(p.{name}_low, p.{name}_high) is null)")
    return " and ".join(parts)


def nested_loop(events: DataFrame, predicates: DataFrame) -> DataFrame:
    """Join by a condition that has no equality."""
    joined = events.alias("e").join(F.broadcast(predicates.alias("p")), F.expr(_asked(None)))
    return joined.select("e.offset", "p.id")


def equi_join(events: DataFrame, predicates: DataFrame) -> DataFrame:
    """Join by an equality for each key; subscriptions without one by a nested loop."""
    found = nested_loop(events, predicates.where("key < 0"))
    for place in range(STRINGS):
        name = NAMES[place]
        of_key = predicates.where(F.col("key") == place).alias("p")
        condition = F.expr(f"e.{name} = p.{name} and {_asked(name)}")
        found = found.union(events.alias("e").join(F.broadcast(of_key), condition).select("e.offset", "p.id"))
    return found


def _in_spark(way: str, query: DataFrame, events: int, cpu_s: Callable[[], float]) -> Measured:
    column = F.size("subscriptions") if "subscriptions" in query.columns else F.lit(1)
    pairs = query.agg(F.sum(column)).collect()[0][0]
    rates, cpu_rates = [], []
    for _ in range(RUNS):
        began_s, before_s = time.monotonic(), cpu_s()
        query.write.format("noop").mode("overwrite").save()
        rates.append(events / (time.monotonic() - began_s))
        cpu_rates.append(events / max(cpu_s() - before_s, 0.01))
    return Measured(way, CORES, events, int(pairs or 0), max(rates), max(cpu_rates))


def in_duckdb(table: Table) -> Measured:
    """Do the equi-joins in DuckDB."""
    count = int(table.events * JOINED_SHARE["duckdb"])
    rates, cpu_rates, pairs = [], [], 0
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {CORES}")
        connection.register("arrow_predicates", table.predicates)
        connection.execute("create table predicates as from arrow_predicates")
        connection.execute(
            f"create table events as from read_parquet('{table.directory}/*.parquet') where \"offset\" < {count}"
        )
        parts = [f"select count(*) n from events e join predicates p on p.key < 0 and {_asked(None)}"]
        for place in range(STRINGS):
            name = NAMES[place]
            parts.append(
                f"select count(*) n from events e join predicates p on p.key = {place} and e.{name} = p.{name} "
                f"and {_asked(name)}"
            )
        query = f"select sum(n) from ({' union all '.join(parts)})"
        for _ in range(RUNS):
            began_s, cpu_s = time.monotonic(), time.process_time()
            [[pairs]] = connection.execute(query).fetchall()
            rates.append(count / (time.monotonic() - began_s))
            cpu_rates.append(count / (time.process_time() - cpu_s))
    return Measured("duckdb", CORES, count, int(pairs), max(rates), max(cpu_rates))
