"""Moves that make the loads of the servers of a running domain nearly even (SPEC J-08, decision 0151)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from wanderbus.planning.balancing import balance
from wanderbus.planning.rearranging import lower_loads
from wanderbus.planning.servers import Servers

MAX_RATIO: Final = 1.2
"""Largest load of a server, divided by the mean, above which something moves."""


class PlacedItem(NamedTuple):
    """An item that can move: its name, its present server, and its load."""

    name: str
    server: str
    load_us: int


class ItemMove(NamedTuple):
    """Move of an item from one server to another."""

    name: str
    source: str
    target: str
    load_us: int


def moves_between(
    servers: Iterable[str],
    items: Iterable[PlacedItem],
    fixed_us: Mapping[str, int],
    max_ratio: float = MAX_RATIO,
) -> list[ItemMove]:
    """Return few moves after which no server has more than ``max_ratio`` times the mean load, the largest load first.

    ``fixed_us`` is the load of each server that cannot move. Nothing moves below ``max_ratio``. Above it, items move
    until the ratio is halfway between 1 and ``max_ratio``, so that a small change of the loads moves nothing again. An
    item or a fixed load above that bounds what can be reached. The same arguments give the same moves, in any order.
    """
    names = sorted(servers)
    present = {item.name: item for item in items if item.server in names}
    if not names:
        return []
    loads = {name: item.load_us for name, item in present.items()}
    placed = Servers.of(len(names), loads, {name: names.index(item.server) for name, item in present.items()})
    fixed = [fixed_us.get(name, 0) for name in names]
    placed.loads = [load + more for load, more in zip(placed.loads, fixed, strict=True)]
    mean = sum(placed.loads) / len(names)
    least = max([*loads.values(), *fixed])
    if max(placed.loads) <= max(mean * max_ratio, least):
        return []
    enough = max(int(mean * (1 + max_ratio) / 2), least)
    if not lower_loads(placed, enough, len(loads)):
        balance(placed, enough)
    after = placed.server_of()
    moved = [
        ItemMove(item.name, item.server, names[after[item.name]], item.load_us)
        for item in present.values()
        if names[after[item.name]] != item.server
    ]
    return sorted(moved, key=lambda move: (-move.load_us, move.name))


def ratio(loads_us: Iterable[int]) -> float:
    """Return the largest load, divided by the mean; 1 without any load."""
    loads = list(loads_us)
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0
