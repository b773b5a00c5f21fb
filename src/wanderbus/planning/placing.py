"""Placement of subjects onto servers with a small largest load, in bounded time.

No placement has a largest load below :func:`least_max_load`. There are three steps, and each one only lowers it:

1. Longest processing time first (LPT): the subjects in descending order, each on the least loaded server. At most
   4/3 - 1/(3 n) times the optimum on n servers.
2. Multifit: the smallest capacity, by bisection, into which the subjects fit first-fit in descending order.
3. Moves and exchanges of subjects between the most loaded server and another one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from wanderbus.errors import ConfigurationError
from wanderbus.planning.balancing import balance
from wanderbus.planning.rearranging import rearranged
from wanderbus.planning.servers import Item, Servers, descending, loads_by_server

SLACK: Final = 0.05
"""Share by which the largest load may exceed that of a new placement, so that subjects stay where they are."""

NEAR: Final = 0.001
"""Share by which the largest load may exceed its lower bound without further steps."""

BISECTIONS: Final = 12
FITS_MAX: Final = 200_000
"""Comparisons of one first fit: of the subjects, the largest ones; the rest follows by LPT."""


class Placement(NamedTuple):
    """Server of each subject, numbered from 0 on, and the load of each server."""

    server_of: dict[str, int]
    loads: list[int]

    @property
    def max_load(self) -> int:
        """Return the largest load of a server."""
        return max(self.loads)


def place(
    loads: Mapping[str, int], servers: int, present: Mapping[str, int] | None = None, *, slack: float = SLACK
) -> Placement:
    """Return a placement of the subjects with these ``loads`` onto ``servers``.

    ``present`` is the placement that holds now. Subjects then stay where they are as far as the largest load is within
    ``slack`` of that of a new placement. The result does not depend on the order of ``loads``. Raises
    ``ConfigurationError`` for less than one server, a negative load or a negative slack.
    """
    if servers < 1:
        raise ConfigurationError(f"a plan needs at least one server, not {servers}")
    if slack < 0:
        raise ConfigurationError(f"slack must be at least 0, not {slack:g}")
    for subject, load in loads.items():
        if load < 0:
            raise ConfigurationError(f"the load of subject {subject!r} is {load}; it must be at least 0")
    items = descending(loads)
    fresh = _placed_anew(items, servers)
    found = fresh if present is None else rearranged(loads, fresh, dict(present), slack)
    server_of = found.server_of()
    return Placement(dict(sorted(server_of.items())), loads_by_server(servers, loads, server_of))


def least_max_load(loads: Iterable[int], servers: int) -> int:
    """Return a load that the most loaded server has in every placement: a lower bound of the optimum."""
    ordered = sorted(loads, reverse=True)
    if not ordered:
        return 0
    pair = ordered[servers - 1] + ordered[servers] if len(ordered) > servers else 0
    return max(-(-sum(ordered) // servers), ordered[0], pair)


def longest_first(items: Sequence[Item], servers: Servers) -> None:
    """Put ``items``, in descending order, one by one on the least loaded server; those without load are spread."""
    heap = [(load, number) for number, load in enumerate(servers.loads)]
    heapq.heapify(heap)
    placed: list[list[Item]] = [[] for _ in heap]
    for item in items:
        load, number = heap[0]
        if item[0]:
            placed[number].append(item)
            heapq.heapreplace(heap, (load + item[0], number))
    for number, added in enumerate(placed):
        servers.items[number] = sorted([*servers.items[number], *added])
        servers.loads[number] += sum(load for load, _ in added)
    servers.add_idle(item for item in items if not item[0])


def _placed_anew(items: Sequence[Item], count: int) -> Servers:
    """Return the placement of ``items``, in descending order, without regard to a present one."""
    best = Servers(count)
    longest_first(items, best)
    low, high = least_max_load((load for load, _ in items), count), max(best.loads)
    enough = low + int(low * NEAR)
    for _ in range(BISECTIONS):
        if max(best.loads) <= enough or low >= high:
            break
        capacity = (low + high) // 2
        tried = _first_fit(items, count, capacity)
        if tried is not None and max(tried.loads) < max(best.loads):
            best = tried
        if tried is not None and max(tried.loads) <= capacity:
            high = capacity
        else:
            low = capacity + 1
    balance(best, enough)
    return best


def _first_fit(items: Sequence[Item], count: int, capacity: int) -> Servers | None:
    """Return the placement in which each item is on the first server with room, None if some item has no room."""
    large = items[: max(count, FITS_MAX // count)]
    found = Servers(count)
    for item in large:
        for number, load in enumerate(found.loads):
            if load + item[0] <= capacity:
                found.items[number].append(item)
                found.loads[number] += item[0]
                break
        else:
            return None
    for each in found.items:
        each.sort()
    longest_first(items[len(large) :], found)
    return found
