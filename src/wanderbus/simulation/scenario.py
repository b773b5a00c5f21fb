"""Base of all scenarios: a world of one seed, its run, and the result with the counters that a command prints."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from wanderbus.simulation.world import World


class Result(msgspec.Struct, frozen=True):
    """Result of one seed; ``problems`` is empty if every promise held."""

    seed: int
    problems: list[str]
    counts: dict[str, float]
    virtual_s: float
    fingerprint: str


class Scenario(ABC):
    """A world that one seed sets up, disturbs and repairs, and the check of its promises."""

    counted: ClassVar[Mapping[str, str]] = {}
    """Counters that a command adds up and prints: name of the counter to printed words."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.world = World(seed, keep_trace=keep_trace)
        self.problems: list[str] = []
        """One line for each broken promise."""

    @classmethod
    def run_seed(cls, seed: int) -> Result:
        """Return the result of ``seed``; the same every time."""
        return cls(seed).run()

    def run(self) -> Result:
        """Run the world and check it; an exception out of a machine ends the world, and is a broken promise too."""
        try:
            self._play()
            self._check_promises()
        except Exception as error:
            self.problems.append(_describe(error))
        counts = self.counts()
        # A world that ended early has not counted everything.
        if (missing := self.counted.keys() - counts) and not self.problems:
            self.problems.append(f"nothing counts {', '.join(sorted(missing))}")
        return Result(self.seed, self.problems, counts, round(self.world.now, 3), self.world.fingerprint())

    @abstractmethod
    def counts(self) -> dict[str, float]:
        """Return the counters of what happened, by name."""

    @abstractmethod
    def _play(self) -> None:
        """Run the world, repair it, and let it come to rest."""

    @abstractmethod
    def _check_promises(self) -> None:
        """Check the promises that only the end shows."""


def _describe(error: Exception) -> str:
    """Return a line with the error and the place where it was raised."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} in {place.name}, {Path(place.filename).name}:{place.lineno}"
