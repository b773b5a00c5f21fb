"""Pace of moves: how many may be under way at once, more while they end in time, and fewer once they do not."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Final

GROWTH: Final = 0.25
"""By how much the window grows for each move that ends in time: it doubles in three or four rounds."""


class MovePace:
    """A window of moves.

    :param least: size of the window at first, and its smallest one: other work may make every move late
    :param most: its largest size
    :param late_s: a move ends in time unless it takes longer than the shortest one by this time
    :param lost_s: time after which nothing is awaited of a move any more
    """

    def __init__(self, least: int, most: int, late_s: float, lost_s: float) -> None:
        self._window = float(least)
        self._least = float(least)
        self._most = most
        self._late_s = late_s
        self._lost_s = lost_s
        self._shortest_s = inf
        self._begun: dict[Hashable, float] = {}
        """When each move began, in this order."""
        self._shrunk_at = -inf

    @property
    def size(self) -> int:
        """Return how many moves may be under way."""
        return int(self._window)

    def has_room(self, now: float) -> bool:
        """Return whether another move may begin."""
        return self._under_way(now) < self.size

    def is_idle(self, now: float) -> bool:
        """Return whether no move is under way."""
        return not self._under_way(now)

    def begin(self, move: Hashable, now: float) -> None:
        """Note that a move begins."""
        self._begun[move] = now

    def end(self, move: Hashable, now: float) -> None:
        """Note that a move has ended; moves that began before the window shrank say nothing about its present size."""
        began = self._begun.pop(move, None)
        if began is None:
            return
        took_s = now - began
        self._shortest_s = min(self._shortest_s, took_s)
        if took_s <= self._shortest_s + self._late_s:
            self._window = min(self._window + GROWTH, self._most)
        elif began > self._shrunk_at:
            self._window, self._shrunk_at = max(self._window / 2, self._least), now

    def forget(self, move: Hashable) -> None:
        """Await nothing of a move that has failed."""
        self._begun.pop(move, None)

    def _under_way(self, now: float) -> int:
        while self._begun and (oldest := next(iter(self._begun.items())))[1] <= now - self._lost_s:
            del self._begun[oldest[0]]
        return len(self._begun)
