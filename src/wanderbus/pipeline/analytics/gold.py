"""All gold tables of a period, made of the tables of a lake (SPEC T-08)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.counts import blocked, device_counts, drops, session_counts, subject_counts
from wanderbus.pipeline.analytics.coverings import compared, coverings, uncompared
from wanderbus.pipeline.analytics.entries import entries, marks, owners
from wanderbus.pipeline.analytics.group_moves import group_moves
from wanderbus.pipeline.analytics.latencies import latencies
from wanderbus.pipeline.analytics.queue_depths import queue_depths
from wanderbus.pipeline.analytics.settled import absences, acknowledgements, handovers, matches, moves, settled
from wanderbus.pipeline.analytics.subscription_counts import subscription_counts
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.logs import LakeLogs, logs_in, server_of
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG
from wanderbus.pipeline.tables import named

MINUTE_US: Final = 60_000_000

SMALL_BYTES: Final = 4 << 20
"""Size of the files of a lake's tables up to which one task reads a table: to plan and to start more takes longer."""

SMALL_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of Spark for a small lake: to compile a query, or to broadcast rows, takes longer than to interpret it."""


class Period(NamedTuple):
    """Time from ``from_us`` up to ``to_us``, itself not included, by the server's clock; None for no bound.

    Matches, events and moves belong to the period in which they begin. Their outcomes are those at its end.
    """

    from_us: int | None = None
    to_us: int | None = None

    def within(self, rows: DataFrame, column: str = "at_us") -> DataFrame:
        """Return the rows whose time is in the period."""
        begun = rows if self.from_us is None else rows.where(F.col(column) >= self.from_us)
        return self.before_end(begun, column)

    def before_end(self, rows: DataFrame, column: str = "at_us") -> DataFrame:
        """Return the rows whose time is before the end of the period."""
        return rows if self.to_us is None else rows.where(F.col(column) < self.to_us)

    def after_begin(self, rows: DataFrame, width_us: int) -> DataFrame:
        """Return the rows of spans of ``width_us`` from ``from_us`` on, which end after the begin of the period."""
        return rows if self.from_us is None else rows.where(F.col("from_us") > self.from_us - width_us)

    def overlapping(self, rows: DataFrame) -> DataFrame:
        """Return the rows from ``from_us`` to ``to_us`` that begin before the end of the period and end within it."""
        is_after = F.col("to_us").isNull() | (F.col("to_us") > (self.from_us or 0))
        return self.before_end(rows.where(is_after), "from_us")


EVERYTHING: Final = Period()


class LakeTables(NamedTuple):
    """Tables of a lake that analytics read, up to the end of a period; each is one partition if ``is_small``."""

    records: DataFrame
    events: DataFrame
    notifications: DataFrame
    deliveries: DataFrame
    sessions: DataFrame
    subscriptions: DataFrame
    is_small: bool = False
    servers: tuple[str, ...] = ()
    """Names of the servers whose logs these are."""
    writers: tuple[str, ...] = ()
    """Name of the server of each log in the lake, by the number of the log."""

    def keep(self, rows: DataFrame) -> DataFrame:
        """Return rows that several tables need, so that they are computed once.

        Of a small lake they are computed now, so that Spark does not plan their origin again for each use.
        """
        return rows.coalesce(1).localCheckpoint() if self.is_small else rows.cache()


def lake_tables(
    spark: SparkSession, lake: Path | str, period: Period = EVERYTHING, server: str | None = None
) -> LakeTables:
    """Return the tables of a lake up to the end of the period, or what is of the log of one ``server`` in them.

    Sessions of the servers of a domain at each other are left out: their events are those of the users, on the way.
    Raises ``StorageError`` if there is no such lake or server.
    """
    lake = Path(lake)
    names = [name for name in LakeTables._fields if name not in ("is_small", "servers", "writers")]
    is_small = sum(LakeTable(lake, named(name)).size() for name in names) <= SMALL_BYTES
    if is_small:
        spark = _for_small(spark)
    logs = logs_in(lake)
    found = {name: _of_users(table(spark, lake, name), logs, server) for name in names}
    if is_small:
        found = {name: rows.coalesce(1) for name, rows in found.items()}
    versions = found.pop("subscriptions")
    if period.to_us is not None:
        is_later = F.col("to_us") >= period.to_us
        open_end = {name: F.when(~is_later, F.col(name)) for name in ("to_offset", "to_us", "ended")}
        versions = period.before_end(versions, "from_us").withColumns(
            {**open_end, "is_live": F.col("is_live") | F.coalesce(is_later, F.lit(False))}
        )
    within = {name: period.before_end(rows) for name, rows in found.items()}
    writers = tuple(map(server_of, logs.identities))
    servers = tuple(dict.fromkeys(writers)) if server is None else (server,)
    return LakeTables(**within, subscriptions=versions, is_small=is_small, servers=servers, writers=writers)


def _of_users(rows: DataFrame, logs: LakeLogs, server: str | None) -> DataFrame:
    """Return the rows of one log if a ``server`` is given, without those of sessions of servers."""
    offset = "from_offset" if "from_offset" in rows.columns else "offset"
    if server is not None:
        base = logs.base_of_server(server)
        rows = rows.where((F.col(offset) >= base) & (F.col(offset) < base + OFFSETS_A_LOG))
    user = "owner" if "owner" in rows.columns else "user"
    if len(logs.identities) == 1 or "record" in rows.columns:
        return rows
    servers = "|".join(rf"\Q{server_of(each)}\E" for each in logs.identities)
    return rows.where(~F.col(user).rlike(rf"^sip:({servers})@servers\."))


def _for_small(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark with :data:`SMALL_SETTINGS`, which other users of ``spark`` do not want."""
    own = spark.newSession()
    for name, value in SMALL_SETTINGS.items():
        own.conf.set(name, value)
    return own


class GoldTables:
    """Gold tables of a period, by name in ``frames``; a context whose end frees the memory that they share.

    ``bucket_us`` is the time of one row of queue depths. ``every_match`` are the matches up to the end of the period,
    those from before it included.
    """

    def __init__(self, tables: LakeTables, period: Period = EVERYTHING, *, bucket_us: int = MINUTE_US) -> None:
        marked = tables.keep(marks(tables.records))
        every = entries(tables.notifications, tables.deliveries, tables.sessions, tables.subscriptions, marked)
        rows = tables.keep(settled(every, tables.servers, is_small=tables.is_small))
        filters = tables.keep(compared(tables.subscriptions))
        self._cached = (marked, rows, filters)
        taken = acknowledgements(rows, tables.events)
        self.tables, self.period = tables, period
        self.every_match = matches(rows)
        self.frames: dict[str, DataFrame] = {
            "matches": period.within(self.every_match),
            "acknowledgements": period.within(taken, "matched_us"),
            "queue_depths": period.after_begin(queue_depths(self.every_match, bucket_us), bucket_us),
            "absences": period.overlapping(absences(rows)),
            "moves": period.within(moves(rows, taken), "moved_us"),
            "handovers": period.within(handovers(rows, tables.events), "begun_us"),
            "group_moves": period.within(group_moves(tables.records, tables.writers), "begun_us"),
            "coverings": coverings(filters),
            "uncompared_filters": uncompared(filters),
        }
        self.frames |= self._counts(tables, period, period.within(blocked(marked, owners(tables.subscriptions))))

    def _counts(self, tables: LakeTables, period: Period, restricted: DataFrame) -> Mapping[str, DataFrame]:
        found, events = self.frames, period.within(tables.events)
        matched, taken = found["matches"], found["acknowledgements"]
        return {
            "session_counts": session_counts(matched, period.within(tables.notifications), restricted, tables.sessions),
            "drops": drops(matched),
            "latencies": latencies(taken),
            "subject_counts": subject_counts(events, matched),
            "device_counts": device_counts(events, taken, found["absences"], found["moves"]),
            "subscription_counts": subscription_counts(tables.subscriptions, events, matched, restricted),
        }

    def __enter__(self) -> GoldTables:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._cached:
            each.unpersist()
