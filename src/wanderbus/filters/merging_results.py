"""Results of merging: the change of a merged set, and counts of events."""

from __future__ import annotations

import msgspec

from wanderbus.filters.normal import Conjunction


class MergedChange(msgspec.Struct, frozen=True):
    """Changes of the merged set by an update: what neighbours must be sent."""

    added: tuple[Conjunction, ...] = ()
    removed: tuple[Conjunction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class PrecisionCounts(msgspec.Struct, frozen=True):
    """Numbers of events that match the original filters, the merged filters, and both (SPEC B-08)."""

    originals: int
    merged: int
    both: int

    @property
    def precision(self) -> float:
        """Return the share of events let through by the merged filters that were wanted; 1 if none was let through."""
        return self.both / self.merged if self.merged else 1.0

    @property
    def recall(self) -> float:
        """Return the share of wanted events that the merged filters let through; 1 if none was wanted."""
        return self.both / self.originals if self.originals else 1.0
