"""Improvement of a placement: moves and exchanges that lower the load of the most loaded server."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

from wanderbus.planning.servers import Item, Servers

ROUNDS_MAX: Final = 500
PARTNERS_MAX: Final = 16
"""Servers that are tried in one round, from the least loaded on."""

ITEMS_MAX: Final = 500
"""Items of the most loaded server that are tried in an exchange with another server, from the largest on."""


class _Exchange(NamedTuple):
    """An item that leaves the most loaded server, and the item that comes instead, if there is one."""

    off_balance: int
    leaving: Item
    coming: Item | None


def balance(servers: Servers, enough: int) -> None:
    """Lower the largest load as far as single moves and exchanges can, down to ``enough``, in a bounded time."""
    for _ in range(ROUNDS_MAX):
        source = servers.most_loaded()
        if servers.loads[source] <= enough or not _relieve(servers, source):
            return


def _relieve(servers: Servers, source: int) -> bool:
    """Exchange items of ``source`` with a server such that both have less than ``source`` had; False if none can."""
    for target in servers.ascending()[:PARTNERS_MAX]:
        gap = servers.loads[source] - servers.loads[target]
        if gap < 2:
            return False
        found = _best(servers.items[source], servers.items[target], gap)
        if found is not None:
            servers.move(found.leaving, source, target)
            if found.coming is not None:
                servers.move(found.coming, target, source)
            return True
    return False


def _best(source: list[Item], target: list[Item], gap: int) -> _Exchange | None:
    """Return the exchange after which the two loads, ``gap`` apart, differ least; None if none lowers the larger one.

    An exchange that moves the load d lowers the larger load if d is above 0 and below the gap.
    """
    wanted = gap // 2
    found: list[_Exchange] = []
    for leaving in _around(source, wanted):
        if 0 < leaving[0] < gap:
            found.append(_Exchange(abs(gap - 2 * leaving[0]), leaving, None))
    for leaving in source[-ITEMS_MAX:]:
        for coming in _around(target, leaving[0] - wanted):
            if 0 < leaving[0] - coming[0] < gap:
                found.append(_Exchange(abs(gap - 2 * (leaving[0] - coming[0])), leaving, coming))
    return min(found, key=lambda each: (each.off_balance, each.coming is not None, each.leaving), default=None)


def _around(items: list[Item], load: int) -> list[Item]:
    """Return the items nearest to a load: the last one below it, and the first one from it on."""
    place = bisect_left(items, (load, ""))
    return items[max(0, place - 1) : place + 1]
