"""Peers of the matching benchmark, in the same run: with fixed subscriptions, and events encoded before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import duckdb
import numpy as np

from bench.matching_static import Static
from bench.matching_workload import Ints, Workload

Peer = Callable[[Ints], list[list[int]]]
"""Function from rows of events to the numbers of the subscriptions that each matches."""


def peers(workload: Workload, count: int, static: Static) -> Iterator[tuple[str, Peer]]:
    """Yield each peer by name, created when its turn comes."""
    yield "numpy", lambda rows: [static.match_in_numpy(row).tolist() for row in rows]
    yield "duckdb join", duckdb_join(workload, count)
    yield "plain loop", plain_loop(workload, count)


def plain_loop(workload: Workload, count: int) -> Peer:
    """Return a scan of all subscriptions, each up to its first predicate that fails."""
    predicates = _predicates(workload, count)
    rows = list(zip(*(column.tolist() for column in predicates), strict=True))
    subscriptions = [rows[begin:end] for begin, end in pairwise(workload.start[: count + 1].tolist())]

    def match(event: list[int]) -> Iterator[int]:
        for number, asked in enumerate(subscriptions):
            for place, low, high in asked:
                if not low <= event[place] <= high:
                    break
            else:
                yield number

    return lambda events: [list(match(event)) for event in events.tolist()]


def duckdb_join(workload: Workload, count: int) -> Peer:
    """Return a join of attributes with predicates, in one thread, that counts how many of each subscription hold."""
    database = duckdb.connect(config={"threads": 1})
    place, low, high = _predicates(workload, count)
    sizes = np.diff(workload.start[: count + 1])
    subscription = np.repeat(np.arange(count, dtype=np.int32), sizes)
    size = np.repeat(sizes, sizes).astype(np.int8)
    tables = {"subscription": subscription, "size": size, "place": place, "low": low, "high": high}
    database.register("arrays", tables)
    database.execute("CREATE TABLE predicate AS SELECT * FROM arrays ORDER BY place, low")

    def match(events: Ints) -> list[list[int]]:
        event, place = np.nonzero(events >= 0)
        database.register("attribute", {"event": event, "place": place, "value": events[event, place]})
        answer = database.execute(_JOIN).fetchnumpy()
        found: list[list[int]] = [[] for _ in events]
        for number, matched in zip(answer["event"].tolist(), answer["subscription"].tolist(), strict=True):
            found[number].append(matched)
        return found

    return match


_JOIN = """
    SELECT event, subscription FROM attribute JOIN predicate USING (place)
    WHERE value BETWEEN low AND high GROUP BY event, subscription, size HAVING count(*) = size
"""


def _predicates(workload: Workload, count: int) -> tuple[Ints, Ints, Ints]:
    last = int(workload.start[count])
    return workload.attribute[:last], workload.low[:last], workload.high[:last]
