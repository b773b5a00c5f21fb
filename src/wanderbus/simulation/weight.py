"""Memory held by a machine: weighing it at rest finds collections that grow and never shrink."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

ITEM_BYTES: Final = 60
"""Bytes that an item of a container counts for, besides its own bytes."""


def weight_bytes(machine: object) -> int:
    """Return about how much memory ``machine`` holds: the bytes and items of everything in it and its parts."""
    seen: set[int] = set()
    rest: list[Any] = [machine]
    weight = 0
    while rest:
        thing = rest.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, bytes | bytearray | str):
            weight += len(thing)
        elif isinstance(thing, dict):
            weight += ITEM_BYTES * len(thing)
            rest += thing.keys()
            rest += thing.values()
        elif isinstance(thing, list | tuple | set | frozenset | deque):
            weight += ITEM_BYTES * len(thing)
            rest += thing
        elif type(thing).__module__.startswith("wanderbus."):
            rest += _parts(thing)
    return weight


def _parts(thing: object) -> list[Any]:
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, name, None) for name in names)]
