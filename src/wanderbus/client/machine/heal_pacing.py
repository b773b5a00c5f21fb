"""Pauses of an agent whose sessions or connections fail one after the other (RFC 5626 4.5).

The first failures are healed at once, as a broker that restarts or a relay that went away makes them. A server that
ends whatever was just begun, or refuses every call, is asked less and less often.
"""

from __future__ import annotations

from typing import Final

from wanderbus.machine import RandomSource

FIRST_S: Final = (0.2, 1.0)
"""Before a session is created again, or a connection; at random, so that not all agents come at once."""

FREE_FAILURES: Final = 4
"""Failures in a row that are followed by no more than the first pause."""

STABLE_S: Final = 30.0
"""A connection that held for so long ends the row."""


class HealPacing:
    """Counts failures in a row; ``pause_s_max`` bounds the pauses after them."""

    def __init__(self, random: RandomSource, pause_s_max: float) -> None:
        self._random = random
        self._pause_s_max = pause_s_max
        self._failures = 0
        self._agreed_at: float | None = None

    def agreed(self, now: float) -> None:
        """Note that a session stands; one that stood already goes on."""
        if self._agreed_at is None:
            self._agreed_at = now

    def moved(self) -> None:
        """Begin a new row: at another address everything may be different."""
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
        """Return whether so few failures came in a row that the next attempt need not wait."""
        return self._failures <= FREE_FAILURES
