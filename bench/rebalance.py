"""Benchmark of the moves that share the load of a domain: the largest load of a server, divided by the mean.

Events have 10,000 subjects by Zipf's law, in 64 channel groups that a hash places. The moves are chosen by the first
half of the events, as ``wanderbus domain rebalance`` chooses them, and held against the second half.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from harness.reporting import finish, goal
from wanderbus.channels.directory import Directory, LeaderTable, first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.planning.rebalancing import PlacedItem, moves_between, ratio

SERVERS: Final = (2, 3, 4, 8)
SUBJECTS: Final = 10_000
EVENTS: Final = 200_000
HASHES: Final = 10
EVENT_US: Final = 35

Loads = Mapping[int, int]
"""Load of each channel group."""


def main(arguments: list[str] | None = None) -> int:
    """Choose moves, print, and write JSON if asked; return the exit status."""
    parser = argparse.ArgumentParser(prog="./do bench rebalance", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is not met")
    options = parser.parse_args(arguments)
    rows = [_balanced(servers, hashed) for servers in SERVERS for hashed in range(HASHES)]
    for servers in SERVERS:
        of_size = [row for row in rows if row["servers"] == servers]
        print(
            f"{servers} servers: ratio {max(row['before'] for row in of_size):.3f} before, "
            f"{max(row['after'] for row in of_size):.3f} after at most {max(row['moves'] for row in of_size)} moves"
        )
    goals = [
        goal("load_max_over_mean_after_rebalance", max(row["after"] for row in rows), "ratio", most=1.2),
        goal("load_max_over_mean_before_rebalance", max(row["before"] for row in rows), "ratio"),
        goal("group_moves_of_a_rebalance", max(row["moves"] for row in rows), "moves"),
    ]
    return finish("bench rebalance", rows, goals, file=options.json, strict=options.strict)


def _balanced(servers: int, hashed: int) -> Mapping[str, Any]:
    """Return the ratio of the second half before and after the moves, with a key of the hash of its own."""
    key, names = bytes([hashed]) * 32, tuple(f"s{number + 1}" for number in range(servers))
    directory = Directory(ChannelGroups(key), first_table(GROUPS, names, key))
    drawn = random.Random(hashed)
    first, second = _loads(drawn, directory), _loads(drawn, directory)
    table = directory.table
    items = [PlacedItem(str(group), table.leaders[group].server, load) for group, load in first.items()]
    moves = moves_between(names, items, {})
    moved = {int(move.name): move.target for move in moves}
    return {
        "servers": servers,
        "before": _ratio(second, table, names, {}),
        "after": _ratio(second, table, names, moved),
        "moves": len(moves),
    }


def _loads(drawn: random.Random, directory: Directory) -> Loads:
    """Return the loads of so many events, with subjects by Zipf's law."""
    ends = list(accumulate(1 / (number + 1) for number in range(SUBJECTS)))
    counts: Counter[int] = Counter()
    for number, count in Counter(drawn.choices(range(SUBJECTS), cum_weights=ends, k=EVENTS // 2)).items():
        counts[directory.lookup(f"subject-{number}").group] += count * EVENT_US
    return counts


def _ratio(loads: Loads, table: LeaderTable, names: Sequence[str], moved: Mapping[int, str]) -> float:
    of = dict.fromkeys(names, 0)
    for group, load in loads.items():
        of[moved.get(group, table.leaders[group].server)] += load
    return ratio(of.values())


if __name__ == "__main__":
    sys.exit(main())
