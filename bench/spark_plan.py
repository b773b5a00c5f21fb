"""Plans: the largest load of a server with a plan, beside that with hashes, on subjects by Zipf's law.

The plan is made of the first half of a log, and held against the second half: the load that the servers get later. Its
events and subscriptions have subjects by Zipf's law, so that one of ten thousand subjects has a tenth of all events.
Subscriptions are those of the published experiment on merging (:mod:`bench.filters_workload`), as a Parquet file.
"""

from __future__ import annotations

import random
import resource
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench import filters_workload
from harness.reporting import Goal, goal, progress
from tests.published import published
from wanderbus.event import Event
from wanderbus.pipeline.plans import ActivityPeriod, interests, log_activities, log_records
from wanderbus.pipeline.session import spark_session
from wanderbus.planning import SubjectInterest, loads_of, make_plan
from wanderbus.planning.servers import hashed_server
from wanderbus.records import Notified, Record, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

RECORDS: Final = 200_000
QUICK_RECORDS: Final = 50_000
SUBJECTS: Final = 10_000
SERVERS: Final = (4, 8, 16, 64)
GOAL_SERVERS: Final = 8
HASHES: Final = 20
SCHEMAS: Final = 50
START_US: Final = 1_700_000_000_000_000
STEP_US: Final = 1_000
NOTIFIED_MAX: Final = 4


class Planned(NamedTuple):
    """A plan for some servers, and the largest loads of the second half with it and with a hash."""

    servers: int
    planning_s: float
    planned_vs_bound: float
    """Largest load as planned, divided by its lower bound."""
    max_load_us: int
    max_load_us_hashed: float
    """Mean over some names of the subjects, for the luck of one hash decides much."""
    moved_percent: float
    """Load that moves if a server is added, in percent, and the plan is made near the present one."""

    @property
    def max_load_vs_hash(self) -> float:
        """Return the largest load with the plan, divided by that with the hash."""
        return self.max_load_us / self.max_load_us_hashed


class Results(NamedTuple):
    """Plans, the whole interest, and the time and memory of counting it."""

    plans: list[Planned]
    interest: SubjectInterest
    counting_s: float
    merging_s: float
    driver_mib: float


def measure(work: Path, count: int) -> Results:
    """Measure with so many events and as many subscriptions."""
    subjects = _Subjects(random.Random(0))
    progress(f"writing a log of {count} events and a file of {count} subscriptions")
    _write_log(work, count, subjects)
    _write_subscriptions(work / "subscriptions.parquet", count, subjects)
    spark = spark_session("wanderbus-bench", memory="2g")
    try:
        return _in_spark(spark, work, count)
    finally:
        spark.stop()


def goals(results: Results) -> list[Goal]:
    """Return the goals of plans."""
    by_servers = {each.servers: each for each in results.plans}
    found = [goal("plan_max_load_vs_hash", by_servers[GOAL_SERVERS].max_load_vs_hash, "ratio", most=0.8)]
    found += [
        goal(f"plan_max_load_vs_hash_{each.servers}_servers", each.max_load_vs_hash, "ratio")
        for each in results.plans
        if each.servers != GOAL_SERVERS
    ]
    whole = results.interest
    return [
        *found,
        goal("plan_planned_vs_bound", max(each.planned_vs_bound for each in results.plans), "ratio"),
        goal("plan_moved_for_one_more_server", by_servers[GOAL_SERVERS].moved_percent, "%"),
        goal("plan_subscriptions", whole.subscriptions, "subscriptions"),
        goal("plan_uncovered_share", whole.uncovered / whole.filters, "share"),
        goal("plan_merged_share", whole.merged / whole.filters, "share"),
        goal("plan_counting_s", results.counting_s, "s"),
        goal("plan_merging_s", results.merging_s, "s"),
        goal("plan_planning_s", max(each.planning_s for each in results.plans), "s"),
        goal("plan_driver_mib", results.driver_mib, "MiB"),
    ]


class _Subjects:
    """Subjects drawn by Zipf's law."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names = [f"subject-{number}" for number in range(SUBJECTS)]
        self._ends = list(accumulate(1 / (number + 1) for number in range(SUBJECTS)))

    def draw(self, count: int) -> list[str]:
        """Return so many subjects."""
        return self._rng.choices(self._names, cum_weights=self._ends, k=count)


def _records(count: int, subjects: _Subjects) -> Iterator[Record]:
    for number, subject in enumerate(subjects.draw(count)):
        notified = tuple(
            Notified(f"sip:u{each}@localhost", "default", number, ("s",)) for each in range(number % NOTIFIED_MAX)
        )
        event = Event(subject, {"Number": number, "Price": number * 0.5})
        yield published(event, at_us=START_US + number * STEP_US, number=number, notified=notified)


def _write_log(directory: Path, count: int, subjects: _Subjects) -> None:
    with (directory / segment_name(0)).open("wb") as file:
        file.write(HEADER)
        for offset, record in enumerate(_records(count, subjects)):
            file.write(pack_frame(offset, record.at_us, encode_record(record)))
    (directory / HIGH_WATER).write_bytes(pack_mark(count))


def _write_subscriptions(path: Path, count: int, subjects: _Subjects) -> None:
    texts = list(filters_workload.texts(count, SCHEMAS))
    languages = pa.array(["eci"] * count)
    table = pa.table([subjects.draw(count), texts, languages], names=["subject", "expression", "language"])
    pq.write_table(table, path, row_group_size=50_000)


def _in_spark(spark: SparkSession, work: Path, count: int) -> Results:
    records = log_records(spark, work)
    middle_us = START_US + count // 2 * STEP_US
    progress("counting the events")
    began_s = time.monotonic()
    first = log_activities(records, ActivityPeriod(None, middle_us))
    second = log_activities(records, ActivityPeriod(middle_us, None))
    counting_s = time.monotonic() - began_s
    progress("covering and merging the subscriptions")
    began_s = time.monotonic()
    interest = interests(spark.read.parquet(str(work / "subscriptions.parquet")))
    merging_s = time.monotonic() - began_s
    progress("planning")
    loads, later = loads_of(first, interest), loads_of(second, interest)
    plans = [_planned(loads, later, servers) for servers in SERVERS]
    driver_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Results(plans, sum(interest.values(), SubjectInterest()), counting_s, merging_s, driver_mib)


def _planned(loads: Mapping[str, int], later: Mapping[str, int], servers: int) -> Planned:
    began_s = time.monotonic()
    plan = make_plan(loads, servers)
    planning_s = time.monotonic() - began_s
    grown = make_plan(loads, servers + 1, plan.server_of)
    hashed = [
        _largest(later, servers, [hashed_server(f"{salt}{subject}", servers) for subject in later])
        for salt in range(HASHES)
    ]
    return Planned(
        servers,
        planning_s,
        plan.figures.load_us_max / plan.figures.load_us_least_max,
        _largest(later, servers, [plan.server_of(subject) - 1 for subject in later]),
        statistics.fmean(hashed),
        100 * grown.figures.moved_load_us / sum(loads.values()),
    )


def _largest(loads: Mapping[str, int], servers: int, placed: Sequence[int]) -> int:
    sums = [0] * servers
    for load, server in zip(loads.values(), placed, strict=True):
        sums[server] += load
    return max(sums)
