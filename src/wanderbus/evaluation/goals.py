"""Goals of an evaluation: figures and their bounds."""

from __future__ import annotations

from typing import Self

import msgspec


class Goal(msgspec.Struct, frozen=True):
    """One figure and its bound, as in the reports of all measurements."""

    name: str
    value: float
    unit: str
    goal: float | tuple[float, float]
    """The required figure, or its least and greatest value."""
    met: bool

    @classmethod
    def exactly(cls, name: str, value: float, unit: str, goal: float) -> Self:
        """Return the goal that ``value`` equals ``goal``."""
        return cls(name, round(value, 4), unit, goal, value == goal)

    @classmethod
    def within(cls, name: str, value: float, unit: str, goal: tuple[float, float]) -> Self:
        """Return the goal that ``value`` lies within the bounds ``goal``."""
        return cls(name, round(value, 4), unit, goal, goal[0] <= value <= goal[1])

    @classmethod
    def at_most(cls, name: str, value: float, unit: str, goal: float) -> Self:
        """Return the goal that ``value`` is at most ``goal``."""
        return cls(name, round(value, 4), unit, round(goal, 4), value <= goal)

    def __str__(self) -> str:
        ends = self.goal if isinstance(self.goal, tuple) else (self.goal,)
        wanted = " to ".join(f"{end:g}" for end in ends)
        value = f"{self.value:g} {self.unit}".rstrip()
        return f"{self.name}: {value}, goal {wanted}: {'met' if self.met else 'NOT MET'}"
