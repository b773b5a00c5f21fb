"""A new placement that leaves most subjects where they are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from wanderbus.planning.servers import Item, Servers, descending


def rearranged(loads: Mapping[str, int], fresh: Servers, present: Mapping[str, int], slack: float) -> Servers:
    """Return a placement near the ``present`` one, with a largest load within ``slack`` of that of ``fresh``.

    Subjects that ``present`` does not name, or names on a server that is no longer there, get the least loaded servers;
    those without load are spread. The placement is ``fresh`` itself, perhaps with its servers renumbered, if that moves
    less load, or if single moves from the most loaded server do not suffice.
    """
    count = len(fresh.loads)
    limit = max(fresh.loads) + int(max(fresh.loads) * slack)
    choices = [_renumbered(fresh, present), fresh]
    kept = {subject: present[subject] for subject in loads if present.get(subject, count) in range(count)}
    found = Servers.of(count, loads, kept)
    homeless = descending({subject: load for subject, load in loads.items() if subject not in kept})
    for item in homeless:
        if item[0]:
            found.add(found.ascending()[0], (item,))
    found.add_idle(item for item in homeless if not item[0])
    if lower_loads(found, limit, len(loads)):
        choices.insert(0, found)
    return min(choices, key=lambda servers: moved_load(servers, present))


def moved_load(servers: Servers, present: Mapping[str, int]) -> tuple[int, int]:
    """Return the load of the subjects that are on another server than at ``present``, and their number."""
    moved = [
        load
        for server, items in enumerate(servers.items)
        for load, subject in items
        if present.get(subject, server) != server
    ]
    return sum(moved), len(moved)


def lower_loads(servers: Servers, limit: int, moves_max: int) -> bool:
    """Move items from servers above ``limit`` to the least loaded one; return whether none is above it then."""
    for _ in range(moves_max):
        source, target = servers.most_loaded(), servers.ascending()[0]
        excess = servers.loads[source] - limit
        if excess <= 0:
            return True
        item = _leaving(servers.items[source], excess, limit - servers.loads[target])
        if item is None:
            return False
        servers.move(item, source, target)
    return max(servers.loads) <= limit


def _leaving(items: list[Item], excess: int, room: int) -> Item | None:
    """Return the smallest item that makes up for the ``excess`` and fits into the ``room``, or else the largest."""
    first, past = bisect_left(items, (1, "")), bisect_left(items, (room + 1, ""))
    if first >= past:
        return None
    return items[min(max(first, bisect_left(items, (excess, ""))), past - 1)]


def _renumbered(fresh: Servers, present: Mapping[str, int]) -> Servers:
    """Return the same placement, with such numbers that much load stays where it is at ``present``."""
    shared: dict[tuple[int, int], int] = {}
    for group, items in enumerate(fresh.items):
        for load, subject in items:
            server = present.get(subject, -1)
            if 0 <= server < len(fresh.items):
                shared[group, server] = shared.get((group, server), 0) + load
    number_of: dict[int, int] = {}
    taken: set[int] = set()
    for group, server in sorted(shared, key=lambda pair: (-shared[pair], pair)):
        if group not in number_of and server not in taken:
            number_of[group] = server
            taken.add(server)
    free = iter([server for server in range(len(fresh.items)) if server not in taken])
    made = Servers(len(fresh.items))
    for group, items in enumerate(fresh.items):
        server = number_of[group] if group in number_of else next(free)
        made.items[server], made.loads[server] = items, fresh.loads[group]
    return made
