"""What the runs of an evaluation are held to."""

from __future__ import annotations

from typing import Self

import msgspec


class Goal(msgspec.Struct, frozen=True):
    """One figure and what it should be, as the reports of all measurements have it."""

    name: str
    value: float
    unit: str
    goal: float | tuple[float, float]
    """The figure, or the least and the most that it may be."""
    met: bool

    @classmethod
    def exactly(cls, name: str, value: float, unit: str, goal: float) -> Self:
        """Return that ``value`` has to be ``goal``."""
        return cls(name, round(value, 4), unit, goal, value == goal)

    @classmethod
    def within(cls, name: str, value: float, unit: str, goal: tuple[float, float]) -> Self:
        """Return that ``value`` has to be from the least to the most of ``goal``."""
        return cls(name, round(value, 4), unit, goal, goal[0] <= value <= goal[1])

    @classmethod
    def at_most(cls, name: str, value: float, unit: str, goal: float) -> Self:
        """Return that ``value`` must not be above ``goal``."""
        return cls(name, round(value, 4), unit, round(goal, 4), value <= goal)

    def __str__(self) -> str:
        ends = self.goal if isinstance(self.goal, tuple) else (self.goal,)
        wanted = " to ".join(f"{end:g}" for end in ends)
        value = f"{self.value:g} {self.unit}".rstrip()
        return f"{self.name}: {value}, goal {wanted}: {'met' if self.met else 'NOT MET'}"
