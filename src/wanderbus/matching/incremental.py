"""Work that is done in short steps, between what others wait for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Final

FIXED_US: Final = 50
"""What some operations on arrays cost at least."""

Steps = Generator[int, None, None]
"""Work in the doing: every ``next`` does some, and says about how many microseconds it took."""


class Stepped(ABC):
    """Work that begins when it is made, and is done when a step says so."""

    def __init__(self) -> None:
        self._steps = self._work()

    def step(self, least_us: int) -> bool:
        """Work for about so long; return whether it is done."""
        spent_us = 0
        while spent_us < least_us:
            try:
                spent_us += next(self._steps)
            except StopIteration:
                return True
        return False

    @abstractmethod
    def _work(self) -> Steps:
        """Do it all."""
