"""Work in short steps, so that others need not wait long."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Final

FIXED_US: Final = 50
"""Least cost of some operations on arrays."""

Steps = Generator[int, None, None]
"""Steps of some work: every ``next`` does one step and yields its estimated duration in microseconds."""


class Stepped(ABC):
    """Incremental work: begins when it is created, and is done when :meth:`step` returns True."""

    def __init__(self) -> None:
        self._steps = self._work()

    def step(self, least_us: int) -> bool:
        """Work for about ``least_us``; return whether all is done."""
        spent_us = 0
        while spent_us < least_us:
            try:
                spent_us += next(self._steps)
            except StopIteration:
                return True
        return False

    @abstractmethod
    def _work(self) -> Steps:
        """Do all steps."""
