"""How much a machine keeps: what grows in it and never shrinks is found by weighing it at rest."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

ITEM_BYTES: Final = 60
"""What an item of a container counts for, beside its own bytes."""


def weight_bytes(machine: object) -> int:
    """Return about how much ``machine`` keeps: the bytes and items of everything that it and its parts hold."""
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
