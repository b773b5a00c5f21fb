"""Decoded messages with something else in one place: what a correct decoder may still let through."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

LIES: Final[dict[type, tuple[Any, ...]]] = {
    bool: (True, False),
    int: (2**64 - 1, 2**63, -1, 0),
    str: ("", "?"),
    bytes: (b"", b"?"),
    list: ([],),
    dict: ({},),
    type(None): (5, "x"),
}


def lies_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each place in a decoded message, with something else for it; of a list also one item twice."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from lies_in(each, (*path, key))
    more = ([*value, value[-1]],) if isinstance(value, list) and value else ()
    yield from ((path, lie) for lie in (*LIES.get(type(value), ()), *more) if lie != value)


def with_lie(value: Any, path: tuple[Any, ...], lie: Any) -> Any:
    """Return a decoded message with ``lie`` in one place."""
    if not path:
        return lie
    changed = copy.copy(value)
    changed[path[0]] = with_lie(value[path[0]], path[1:], lie)
    return changed


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Return a decoded message with other texts in the place of those in ``names``."""
    if isinstance(value, dict):
        return {renamed(key, names): renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value
