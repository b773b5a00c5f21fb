"""Joins in SQL that find the same pairs as a history query: in Spark by equi-joins or a nested loop, and in DuckDB.

Subscriptions are rows that say what they ask of each attribute. An equi-join takes from each the equality whose string
has most values; subscriptions without one go through a nested loop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from bench.matching_workload import DOMAIN, DOUBLES, NAMES, STRINGS, Workload

_KEYS: Final = tuple(enumerate(NAMES[:STRINGS]))


def predicates_of(drawn: Workload) -> pa.Table:
    """Return for each subscription a row with the ends of its ranges; a string has its only value in the lower one."""
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
    for place, name in _KEYS:
        of_key = predicates.where(F.col("key") == place).alias("p")
        condition = F.expr(f"e.{name} = p.{name} and {_asked(name)}")
        found = found.union(events.alias("e").join(F.broadcast(of_key), condition).select("e.offset", "p.id"))
    return found


class DuckDB:
    """The first events of a directory and the predicates, in the memory of DuckDB."""

    def __init__(self, directory: Path, predicates: pa.Table, events: int, cores: int) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"set threads = {cores}")
        self._connection.register("arrow_predicates", predicates)
        self._connection.execute("create table predicates as from arrow_predicates")
        files = f"read_parquet('{directory}/*.parquet')"
        self._connection.execute(f'create table events as from {files} where "offset" < {events}')
        keyed = [f"p.key = {place} and e.{name} = p.{name} and {_asked(name)}" for place, name in _KEYS]
        conditions = [f"p.key < 0 and {_asked(None)}", *keyed]
        counts = (f"select count(*) n from events e join predicates p on {each}" for each in conditions)
        self._query = f"select sum(n) from ({' union all '.join(counts)})"

    def pairs(self) -> int:
        """Join, and return the number of pairs."""
        [[pairs]] = self._connection.execute(self._query).fetchall()
        return int(pairs)

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()
