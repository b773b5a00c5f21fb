"""Back-off of an agent whose sessions or connections fail repeatedly (RFC 5626 4.5).

The first failures are healed almost at once, since they are usual when a broker restarts or a relay disappears. A
server that ends every new session, or refuses every call, is retried at growing intervals.
"""

from __future__ import annotations

from typing import Final

from wanderbus.machine import RandomSource

FIRST_S: Final = (0.2, 1.0)
"""Range of the random pause before a new session or connection; it spreads the load of many agents."""

FREE_FAILURES: Final = 4
"""Consecutive failures that are each followed by the first pause only."""

STABLE_S: Final = 30.0
"""Lifetime of a connection after which the count of failures restarts."""


class HealPacing:
    """Counts consecutive failures; ``pause_s_max`` bounds the pauses after them."""

    def __init__(self, random: RandomSource, pause_s_max: float) -> None:
        self._random = random
        self._pause_s_max = pause_s_max
        self._failures = 0
        self._agreed_at: float | None = None

    def agreed(self, now: float) -> None:
        """Note that a session is established, if none was before."""
        if self._agreed_at is None:
            self._agreed_at = now

    def moved(self) -> None:
        """Reset the count: at another address everything may be different."""
        self._failures, self._agreed_at = 0, None

    def failed(self, now: float) -> float:
        """Count a failure; return the pause in seconds before the next attempt."""
        if self._agreed_at is not None and now - self._agreed_at >= STABLE_S:
            self._failures = 0
        self._agreed_at = None
        self._failures += 1
        if self.is_calm:
            return self._random.uniform(*FIRST_S)
        bound_s = min(2.0 ** min(self._failures - FREE_FAILURES, 16), max(self._pause_s_max, FIRST_S[1]))
        return self._random.uniform(bound_s / 2, bound_s)

    @property
    def is_calm(self) -> bool:
        """Return whether there were so few consecutive failures that the next attempt needs no long pause."""
        return self._failures <= FREE_FAILURES
