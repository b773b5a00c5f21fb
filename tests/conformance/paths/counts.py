"""Counts of what each user published and got: by the servers that run, and by reports and gold tables of their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.api.event_domain import AWAY, READERS
from tests.conformance.paths.queues import KEPT_MAX
from tests.conformance.paths.reference import Refusal, right_answer
from tests.conformance.paths.registry import Worlds
from tests.conformance.paths.running import rows_of
from tests.conformance.paths.worlds import WAYS, World
from wanderbus.pipeline.analytics.counts import GIVEN_UP

Counts = Mapping[str, Mapping[str, int]]
"""Numbers other than 0 by user and name: of events ``published``, and of matches that were ``generated`` and so on.

A reason of drops is a name, and ``given_up`` stands for those that somebody asked for.
"""

SHARE: Final = 7
"""One of so many sources that need Spark is asked for a case."""

DISPLACED: Final = "subscription.queue.notifications_max"
"""Reason for which the queues of users who are away drop."""

FOLLOWING: Final = ("generated", "queued", "restricted", DISPLACED)
"""Names of the counts of servers that follow from the answers."""

OF_MATCHES: Final = ("generated", "delivered", "queued", "restricted")


class Counting(NamedTuple):
    """A source of counts, of the servers of the world with the name ``world``."""

    name: str
    world: str
    ask: partial[Counts]
    """Function of the worlds."""


def at_servers(name: str, worlds: Worlds) -> Counts:
    """Return the counters of the servers, as ``wanderbus sessions`` printed them at the end."""
    return _summed((row["user"], _of_matches(row) | row["dropped"]) for row in worlds.named(name).sessions)


def of_report(name: str, options: Callable[[Worlds], list[str]], worlds: Worlds) -> Counts:
    """Return the counts in a report."""
    rows = rows_of("report", *options(worlds), "--out", str(worlds.directory / f"{name}.html"), "--json")
    assert not isinstance(rows, Refusal), rows
    (found,) = rows
    return _summed(
        [
            *((row["user"], {"published": row["events"]}) for row in found["devices"]["rows"]),
            *((row["user"], _of_matches(row) | {"given_up": row["given_up"]}) for row in found["sessions"]["rows"]),
            *((row["user"], {row["reason"]: row["dropped"]}) for row in found["drops"]["rows"]),
        ]
    )


def of_gold(name: str, worlds: Worlds) -> Counts:
    """Return the counts in gold tables."""
    lake = worlds.lakes[name]
    done = rows_of("pipeline", "gold", "--lake", str(lake), "--json")
    assert not isinstance(done, Refusal), done
    return _summed(
        [
            *((row["user"], {"published": row["events"]}) for row in _table(lake, "device_counts")),
            *((row["user"], _of_matches(row)) for row in _table(lake, "session_counts")),
            *((row["user"], {row["reason"]: row["dropped"]}) for row in _table(lake, "drops")),
        ]
    )


def right_counts(world: World) -> Counts:
    """Return the counts that follow from the answers: all but delivered matches, and those that were given up.

    Only a queue with a bound drops anything unasked.
    """
    readers, away = (READERS, AWAY) if world.domain else ({"wb": "alice"}, {"wb": "erin"})
    every = len(world.case.events)
    dropped = max(0, every - KEPT_MAX)
    kept = {"generated": every, "queued": every - dropped, DISPLACED: dropped}
    found: list[tuple[str, Mapping[str, int]]] = [
        ("bob", {"published": every}),
        *((user, kept) for user in away.values()),
    ]
    for (way, place, name), several in world.notifications.items():
        if way != "since, lake":  # a copy of the servers gave these
            restricted = _restricted(world, name, is_live=way in WAYS)
            found.append((readers[place], {"generated": len(several), "restricted": restricted}))
    for (place, name), waiting in world.waiting.items():
        found.append(
            (
                away[place],
                {"generated": waiting, "queued": waiting, "restricted": _restricted(world, name, is_away=True)},
            )
        )
    return _summed((f"sip:{user}@localhost", counts) for user, counts in found)


def _restricted(world: World, name: str, *, is_live: bool = False, is_away: bool = False) -> int:
    """Return the number of matches of a question that its restrictions blocked; only live ones get others later."""
    (asked,) = (each for each in world.case.questions if each.name == name)
    if asked.pattern is not None:
        return 0
    asked = asked if is_live else asked._replace(later=None)
    matches, numbers = (right_answer(world.case, asked, gives, is_away=is_away) for gives in ("matches", "numbers"))
    assert isinstance(matches, list)
    assert isinstance(numbers, list)
    return len(matches) - len(numbers)


def _of_matches(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in OF_MATCHES}


def _summed(rows: Iterable[tuple[str, Mapping[str, int]]]) -> Counts:
    """Return the sums by user, without the sessions of servers at each other."""
    found: dict[str, Counter[str]] = {}
    for user, counts in rows:
        if not user.endswith("@localhost"):
            continue
        for name, count in counts.items():
            found.setdefault(user, Counter())["given_up" if name in GIVEN_UP else name] += count
    return {user: dict(sorted((+counts).items())) for user, counts in found.items() if +counts}


def _table(lake: Path, name: str) -> list[dict[str, Any]]:
    from wanderbus.pipeline.lake.delta import LakeTable
    from wanderbus.pipeline.tables.gold import GOLD_TABLES

    table = next(each for each in GOLD_TABLES if each.name == name)
    rows: list[dict[str, Any]] = LakeTable(lake, table).load().to_pyarrow_table().to_pylist()
    return rows


def _of_lake(name: str, worlds: Worlds) -> list[str]:
    return ["--lake", str(worlds.lakes[name])]


def _of_log(worlds: Worlds) -> list[str]:
    return ["--log", str(worlds.server.logs["wb"])]


_WORLDS: Final = {"server": "one server", "ordered": "an ordered domain", "decentralised": "a decentralised domain"}

COUNTINGS: Final = (
    *(Counting(f"sessions: {shown}", name, partial(at_servers, name)) for name, shown in _WORLDS.items()),
    Counting("report: log of one server", "server", partial(of_report, "log", _of_log)),
    *(
        Counting(f"report: lake of {shown}", name, partial(of_report, name, partial(_of_lake, name)))
        for name, shown in _WORLDS.items()
    ),
    *(Counting(f"gold: lake of {shown}", name, partial(of_gold, name)) for name, shown in _WORLDS.items()),
)
"""All sources of counts, in the order of docs/paths.md."""


def count_differences(worlds: Worlds) -> list[str]:
    """Return each source whose counts differ: servers' from those of the answers, others' from the servers'.

    Servers are asked always, and with Spark some of the others.
    """
    found = []
    for place, each in enumerate(COUNTINGS):
        is_chosen = worlds.spark is not None and (place - worlds.server.case.seed) % SHARE == 1
        if not is_chosen and each.ask.func is not at_servers:
            continue
        own, right = each.ask(worlds), right_counts(worlds.named(each.world))
        if each.ask.func is at_servers:
            own, right = _of_names(own, FOLLOWING), _of_names(right, FOLLOWING)
        else:
            published = ((user, counts) for user, counts in _of_names(right, ("published",)).items())
            right = _summed([*at_servers(each.world, worlds).items(), *published])
        if own != right:
            found.append(f"{each.name}:\n  counts {own}\n  not    {right}")
    return found


def _of_names(counts: Counts, names: Sequence[str]) -> Counts:
    """Return the counts with some names."""
    return _summed((user, {name: row[name] for name in names if name in row}) for user, row in counts.items())
