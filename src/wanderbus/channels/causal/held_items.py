"""Events and moved sessions that wait until their causes are delivered here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wanderbus.channels.causal.header import Dot, Origin
    from wanderbus.channels.causal.held_item import HeldItem, Key


class HeldItems:
    """Table of what waits; each item waits for one missing cause at a time."""

    def __init__(self) -> None:
        self.items: dict[Key, HeldItem] = {}
        self._waiting: dict[Origin, dict[Key, Dot]] = {}

    def add(self, item: HeldItem) -> bool:
        """Hold an item; return False if it is held already."""
        if item.key in self.items:
            return False
        self.items[item.key] = item
        return True

    def wait(self, item: HeldItem, cause: Dot) -> None:
        """Let the item wait until its ``cause`` is reached."""
        item.missing = cause
        self._waiting.setdefault(cause[0], {})[item.key] = cause

    def pop(self, item: HeldItem) -> None:
        """Remove an item that waits for nothing."""
        del self.items[item.key]

    def woken(self, delivered: Mapping[Origin, int], origin: Origin) -> list[HeldItem]:
        """Return the items whose cause from ``origin`` is reached; they wait for nothing until the caller decides."""
        waiting = self._waiting.get(origin, {})
        keys = [key for key, (_, number) in waiting.items() if number <= delivered.get(origin, 0)]
        return [self._release(key) for key in keys]

    def freed(self, server: int) -> list[HeldItem]:
        """Return the items that wait for any event of ``server``; they wait for nothing until the caller decides."""
        origins = [origin for origin in self._waiting if origin[0] == server]
        return [self._release(key) for origin in origins for key in list(self._waiting[origin])]

    def waits_for(self, server: int) -> bool:
        """Return whether anything waits for an event of ``server``."""
        return any(origin[0] == server for origin in self._waiting)

    def _release(self, key: Key) -> HeldItem:
        item = self.items[key]
        assert item.missing is not None
        waiting = self._waiting[item.missing[0]]
        del waiting[key]
        if not waiting:
            del self._waiting[item.missing[0]]
        item.missing = None
        return item
