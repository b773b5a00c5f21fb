"""Pause before a link with another server is opened again."""

from __future__ import annotations


class LinkPause:
    """Doubles from ``least_s`` to ``most_s`` seconds while links close soon after they opened."""

    __slots__ = ("_least_s", "_most_s", "_next_s")

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s = self._next_s = least_s
        self._most_s = most_s

    def after(self, open_s: float) -> float:
        """Return the pause behind a link that was open for so long; after ``most_s`` it is the first one again."""
        pause_s = self._least_s if open_s >= self._most_s else self._next_s
        self._next_s = min(2 * pause_s, self._most_s)
        return pause_s
