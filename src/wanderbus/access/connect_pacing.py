"""Pace at which each user opens sessions with the broker: an offer that comes faster waits (SPEC U-02).

To open and close a session takes a server about 10 ms. Without a pace, a few users who connect and leave without end
take a whole processor, and all others wait. Moves of a session are not paced.
"""

from __future__ import annotations

from typing import Final

from wanderbus.mobility.messages import SessionOffered
from wanderbus.tokens import TokenBucket

BURST: Final = 20.0
"""Sessions that a user may open at once: those of many devices when a network recovers."""

WAITING_MAX: Final = 32
"""Offers of one user that wait; a further one is refused."""

_USERS_MAX: Final = 1_024
"""Users beyond which those with a full bucket are forgotten."""


class ConnectPacing:
    """Offers of new sessions that wait, by user, in their order; ``per_s`` is the pace of each user."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._tokens: dict[str, TokenBucket] = {}
        self._waiting: dict[str, dict[str, SessionOffered]] = {}

    def add(self, offer: SessionOffered) -> bool:
        """Let the offer of a new session wait for its turn; return False if too many of its user wait already."""
        waiting = self._waiting.setdefault(offer.remote_uri, {})
        if offer.id not in waiting and len(waiting) >= WAITING_MAX:
            return False
        waiting[offer.id] = offer
        return True

    def take_due(self, user: str, now: float) -> tuple[list[SessionOffered], float | None]:
        """Remove and return the offers of ``user`` that are due, and when the next one is; None if none waits."""
        waiting, tokens = self._waiting.get(user, {}), self._bucket(user, now)
        due = []
        while waiting and tokens.take(now):
            due.append(waiting.pop(next(iter(waiting))))
        if waiting:
            return due, now + tokens.wait_s(now)
        self._waiting.pop(user, None)
        return due, None

    def withdraw(self, identity: str) -> None:
        """Remove the offer with this id, if it waits."""
        for waiting in self._waiting.values():
            waiting.pop(identity, None)

    def _bucket(self, user: str, now: float) -> TokenBucket:
        if user not in self._tokens and len(self._tokens) >= _USERS_MAX:
            self._tokens = {user: tokens for user, tokens in self._tokens.items() if not tokens.is_full(now)}
        return self._tokens.setdefault(user, TokenBucket(self._per_s, BURST))
