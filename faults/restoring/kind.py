"""Results of the points of one world, and the frame of every world: points, each after the other, in one directory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

SHOWN_MAX: Final = 20


@dataclass
class Tried:
    """Results of the points of one world, or of many."""

    points: int = 0
    silent_losses: int = 0
    """Events that were acknowledged, and that neither arrived nor were named by a gap, an error or a warning."""
    figures: Counter[str] = field(default_factory=Counter)
    """Counts of what is no failure, by name."""
    errors: int = 0
    """Failures of another kind, such as an id that was given twice."""
    words: list[str] = field(default_factory=list)
    """Descriptions of the first failures."""

    def lost(self, count: int, what: str) -> None:
        """Count silent losses."""
        self.silent_losses += count
        self._describe(what)

    def broken(self, what: str) -> None:
        """Count a failure of another kind."""
        self.errors += 1
        self._describe(what)

    def add(self, other: Tried, where: str) -> None:
        """Add the results of the world ``where``."""
        self.points += other.points
        self.silent_losses += other.silent_losses
        self.errors += other.errors
        self.figures += other.figures
        self.words += [f"{where}: {word}" for word in other.words][: SHOWN_MAX - len(self.words)]

    def _describe(self, what: str) -> None:
        if len(self.words) < SHOWN_MAX:
            self.words.append(what)
