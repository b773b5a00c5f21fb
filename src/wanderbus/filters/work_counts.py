"""Counts of the work of a filter for one event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

EIGHTHS: Final = 3
"""Work for each character is counted in eighths of a unit; this is the shift."""


class Share(msgspec.Struct):
    """Work for one attribute of an event: units for each item, and eighths of a unit for each character."""

    items: int = 0
    characters: int = 0
    cased: int = 0
    """Eighths of a unit for each character whose case is changed."""


class Size(msgspec.Struct, frozen=True):
    """Items and characters of one attribute of an event; ``cased`` are characters weighted by their case change."""

    items: int
    characters: int
    cased: int


class Work(msgspec.Struct):
    """Work of one filter: ``fixed`` units, and a share by attribute that depends on the event."""

    fixed: int = 0
    shares: dict[str, Share] = {}

    def share(self, name: str) -> Share:
        """Return the share of an attribute, zero at first."""
        return self.shares.setdefault(name, Share())

    def add(self, other: Work) -> None:
        """Add the work of another filter."""
        self.fixed += other.fixed
        for name, its in other.shares.items():
            share = self.share(name)
            share.items += its.items
            share.characters += its.characters
            share.cased += its.cased

    def units(self, sizes: Mapping[str, Size | None]) -> int:
        """Return the most units of work for an event of these ``sizes``."""
        units = self.fixed
        for name, share in self.shares.items():
            if size := sizes[name]:
                eighths = share.characters * size.characters + share.cased * size.cased
                units += share.items * size.items + (eighths >> EIGHTHS)
        return units
