"""Bounded number of concurrent TLS handshakes: each takes 55 KB before the peer is known (SPEC U-03).

When all places are taken, a new handshake waits. It takes a place at once if another source has more places than the
new one would have: the oldest handshake of the source with the most places is ended. Otherwise a slow handshake is
ended, if there is one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

SLOW_S: Final = 2.0
"""Age at which a handshake may be ended for one that waits: it takes two round trips and milliseconds of work."""


class Handshakes:
    """At most ``most`` concurrent handshakes, each identified by its connection number, and those that wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: dict[int, tuple[str, float]] = {}
        """Source and start in monotonic seconds, the oldest first."""
        self._waiting: dict[int, str] = {}
        """Sources of the waiting handshakes, in the order in which they will begin."""

    def __len__(self) -> int:
        return len(self._begun)

    def has_begun(self, number: int) -> bool:
        """Return whether the handshake has a place."""
        return number in self._begun

    def ask(self, number: int, source: str, now: float) -> int | None:
        """Give the handshake a place or let it wait; return the number of a handshake to end in its favour, if any.

        The caller ends that handshake and calls :meth:`leave` for it.
        """
        if len(self._begun) < self._most:
            self._begun[number] = source, now
            return None
        by_source = Counter(source for source, _ in self._begun.values())
        largest, count = by_source.most_common(1)[0]
        if by_source[source] + 1 < count:
            self._waiting = {number: source, **self._waiting}
            return next(each for each, (its_source, _) in self._begun.items() if its_source == largest)
        self._waiting[number] = source
        oldest, (_, begun_at) = next(iter(self._begun.items()))
        return oldest if now >= begun_at + SLOW_S else None

    def leave(self, number: int, now: float) -> list[int]:
        """Remove a handshake that has ended; return those that begin now. An unknown number is ignored."""
        self._waiting.pop(number, None)
        if self._begun.pop(number, None) is None:
            return []
        following = []
        while self._waiting and len(self._begun) < self._most:
            first = next(iter(self._waiting))
            self._begun[first] = self._waiting.pop(first), now
            following.append(first)
        return following
