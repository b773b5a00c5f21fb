"""Channel groups in a plan of subjects: a domain moves whole groups (SPEC J-08, T-10, decision 0151)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from wanderbus.planning.plan_file import Plan


class PlannedGroup(NamedTuple):
    """Server of a channel group, numbered from 1 on, and its load; ``elsewhere_us`` is planned on other servers."""

    server: int
    load_us: int
    elsewhere_us: int


def planned_groups(plan: Plan, group_of: Callable[[str], int | None]) -> Mapping[int, PlannedGroup]:
    """Return the channel groups with a subject that ``plan`` names, each on the server with the most of its load.

    ``group_of`` returns None for a subject that no server leads. Of equal loads, the number of subjects decides, and
    then the lowest number of a server.
    """
    shares: dict[int, dict[int, tuple[int, int]]] = {}
    for subject, placed in plan.subjects.items():
        if (group := group_of(subject)) is not None:
            load, count = shares.setdefault(group, {}).get(placed.server, (0, 0))
            shares[group][placed.server] = load + placed.load_us, count + 1
    found = {}
    for group, by_server in sorted(shares.items()):
        server = min(by_server, key=lambda each: (-by_server[each][0], -by_server[each][1], each))
        load = sum(each for each, _ in by_server.values())
        found[group] = PlannedGroup(server, load, load - by_server[server][0])
    return found
