"""Tables of a lake, or of the lakes of several domains, as analytics read them (SPEC T-08; decisions 0095, 0168)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.history.domain_lakes import (
    DomainLake,
    lakes_of,
    passing_users,
    require_server_of_one_lake,
)
from wanderbus.pipeline.history.lakes_events import PLACE, keyed, placed
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.logs import server_of
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.lake_offsets import NUMBER_SHIFT, OFFSETS_A_LOG
from wanderbus.pipeline.tables import named

SMALL_BYTES: Final = 4 << 20
"""Size of the files of a lake's tables up to which one task reads a table: to plan and to start more takes longer."""

SMALL_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of Spark for a small lake: to compile a query, or to broadcast rows, takes longer than to interpret it."""


_NAMES: Final = ("records", "events", "notifications", "deliveries", "sessions", "subscriptions")
_OFFSETS: Final = ("offset", "from_offset", "to_offset", "event_offset")
_OF_EVENTS: Final = (
    *("offset", "at_us", "server", "incarnation", "number", "published_us"),
    *("user", "device", "device_epoch", "device_number", "subject"),
)
"""Columns of events that analytics read: the others may differ from lake to lake."""


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
    """Tables that analytics read, up to the end of a period; each is one partition if ``is_small``.

    Those of several lakes have offsets above the bases of the lakes, and the names of servers after their domains, as
    ``alpha.example/s1``. ``events`` have each event once.
    """

    records: DataFrame
    events: DataFrame
    notifications: DataFrame
    deliveries: DataFrame
    sessions: DataFrame
    subscriptions: DataFrame
    seen: DataFrame
    """Events of each lake, also those that another lake has as well: subscriptions of its domain saw them there."""
    accepted: DataFrame
    """``offset, published_us, at_us``: for each row of an event, when it was published and accepted in its domain."""
    is_small: bool = False
    servers: tuple[str, ...] = ()
    """Names of the servers whose logs these are."""
    writers: Mapping[int, str] = {}
    """Name of the server of each log, by the number of the log."""
    homes: tuple[str, ...] = ()
    """Names of the domains of several lakes, in the order of their bases; none for one lake."""
    shared: tuple[DataFrame, ...] = ()
    """Rows in memory that several of these tables are made of."""

    def keep(self, rows: DataFrame) -> DataFrame:
        """Return rows that several tables need, so that they are computed once.

        Of a small lake they are computed now, so that Spark does not plan their origin again for each use.
        """
        return _kept(rows, is_small=self.is_small)


def lake_tables(
    spark: SparkSession,
    lake: Path | str | Sequence[DomainLake],
    period: Period = EVERYTHING,
    server: str | None = None,
) -> LakeTables:
    """Return the tables of a lake up to the end of the period, or what is of the log of one ``server`` in them.

    Sessions of the servers of a domain at each other are left out: their events are those of the users, on the way.
    So are those of the domains of several lakes. Raises ``StorageError`` if there is no such lake or server.
    """
    lakes = lakes_of(Path(lake) if isinstance(lake, str) else lake)
    require_server_of_one_lake(lakes, server)
    is_small = sum(LakeTable(each.path, named(name)).size() for each in lakes for name in _NAMES) <= SMALL_BYTES
    if is_small:
        spark = _for_small(spark)

    def joined(name: str) -> DataFrame:
        parts = [_part(spark, name, each, lakes, server) for each in lakes]
        rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
        return rows.coalesce(1) if is_small else rows

    found = {name: joined(name) for name in _NAMES}
    versions, events = found.pop("subscriptions"), found["events"]
    seen, accepted = events, events
    shared: tuple[DataFrame, ...] = ()
    if len(lakes) > 1:
        every = _kept(placed(events, accepted_us="at_us", first_published_us="published_us"), is_small=is_small)
        found["events"], seen, shared = every.where(f"{PLACE} = 1"), every, (every,)
        accepted = every.selectExpr("offset", "first_published_us as published_us", "accepted_us as at_us")
    within = {name: period.before_end(rows) for name, rows in found.items()}
    writers = _writers(lakes)
    return LakeTables(
        **within,
        subscriptions=_versions(versions, period),
        seen=period.before_end(seen),
        accepted=accepted,
        is_small=is_small,
        servers=tuple(dict.fromkeys(writers.values())) if server is None else (server,),
        writers=writers,
        homes=tuple(each.home for each in lakes) if len(lakes) > 1 else (),
        shared=shared,
    )


def _part(
    spark: SparkSession, name: str, lake: DomainLake, lakes: Sequence[DomainLake], server: str | None
) -> DataFrame:
    """Return a table of one lake, as it is in that of all ``lakes``."""
    rows = _of_users(table(spark, lake.path, name), lake, lakes, server)
    if len(lakes) == 1:
        return rows
    if name == "events":
        rows = keyed(rows.select(*_OF_EVENTS), lake)
    elif "record" not in rows.columns:
        rows = rows.where(~_user(rows).isin(passing_users(lake, lakes)))
    if name == "sessions":
        other = F.col("other_server")
        of_domain = F.concat(F.lit(f"{lake.home}/"), other)
        rows = rows.withColumn("other_server", F.when(other.contains("/"), other).otherwise(of_domain))
    return rows.withColumns({each: F.col(each) + lake.base for each in _OFFSETS if each in rows.columns})


def _writers(lakes: Sequence[DomainLake]) -> dict[int, str]:
    """Return the server of each log, in several lakes after its domain: servers of two domains may have one name."""
    return {
        (each.base >> NUMBER_SHIFT) + number: (f"{each.home}/" if len(lakes) > 1 else "") + server_of(identity)
        for each in lakes
        for number, identity in enumerate(each.logs.identities)
    }


def _versions(versions: DataFrame, period: Period) -> DataFrame:
    """Return the versions of subscriptions as they were at the end of the period."""
    if period.to_us is None:
        return versions
    is_later = F.col("to_us") >= period.to_us
    open_end = {name: F.when(~is_later, F.col(name)) for name in ("to_offset", "to_us", "ended")}
    return period.before_end(versions, "from_us").withColumns(
        {**open_end, "is_live": F.col("is_live") | F.coalesce(is_later, F.lit(False))}
    )


def _of_users(rows: DataFrame, lake: DomainLake, lakes: Sequence[DomainLake], server: str | None) -> DataFrame:
    """Return the rows of one log if a ``server`` is given, without those of sessions of servers."""
    offset = "from_offset" if "from_offset" in rows.columns else "offset"
    if server is not None:
        base = lake.logs.base_of_server(server)
        rows = rows.where((F.col(offset) >= base) & (F.col(offset) < base + OFFSETS_A_LOG))
    identities = [identity for each in lakes if each.home == lake.home for identity in each.logs.identities]
    if len(identities) == 1 or "record" in rows.columns:
        return rows
    servers = "|".join(rf"\Q{server_of(each)}\E" for each in identities)
    return rows.where(~_user(rows).rlike(rf"^sip:({servers})@servers\."))


def _user(rows: DataFrame) -> Column:
    return F.col("owner" if "owner" in rows.columns else "user")


def _kept(rows: DataFrame, *, is_small: bool) -> DataFrame:
    return rows.coalesce(1).localCheckpoint() if is_small else rows.cache()


def _for_small(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark with :data:`SMALL_SETTINGS`, which other users of ``spark`` do not want."""
    own = spark.newSession()
    for name, value in SMALL_SETTINGS.items():
        own.conf.set(name, value)
    return own
