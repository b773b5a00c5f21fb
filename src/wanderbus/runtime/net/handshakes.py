"""Places of TLS handshakes under way: one takes 55 KB before it is known who asks (SPEC U-03).

Where all places are taken, a newcomer waits for one. It need not wait if another source has more places than it would
have: the oldest handshake of the source with the most gives way. If none has, a handshake that was slow gives way.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

SLOW_S: Final = 2.0
"""After so long a handshake may give way to one that waits: it takes two round trips and milliseconds of work."""


class Handshakes:
    """At most ``most`` handshakes under way, each known by the number of its connection, and those that wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: dict[int, tuple[str, float]] = {}
        """Source and monotonic second of the begin, the oldest first."""
        self._waiting: dict[int, str] = {}
        """Sources, in the order in which they will begin."""

    def __len__(self) -> int:
        return len(self._begun)

    def has_begun(self, number: int) -> bool:
        """Return whether the handshake has a place."""
        return number in self._begun

    def ask(self, number: int, source: str, now: float) -> int | None:
        """Give the handshake a place or have it wait; return the number of that which has to end for it, if any.

        The caller ends that and calls :meth:`leave` for it.
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
        """Forget a handshake that has ended; return those that begin now. No harm if it is not known."""
        self._waiting.pop(number, None)
        if self._begun.pop(number, None) is None:
            return []
        following = []
        while self._waiting and len(self._begun) < self._most:
            first = next(iter(self._waiting))
            self._begun[first] = self._waiting.pop(first), now
            following.append(first)
        return following
