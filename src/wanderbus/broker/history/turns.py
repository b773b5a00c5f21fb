"""Turns of the subscriptions that read the past: users take turns, and so do the subscriptions of each user."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain


class Turns:
    """Subscriptions that may read their next piece."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, None]] = {}
        """Subscriptions by user, each once; the first user is next."""

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[str]:
        """Yield the subscriptions, those of the next users first."""
        return chain.from_iterable(self._of.values())

    def has(self, user: str, subscription: str) -> bool:
        """Return whether a subscription of a user waits for its turn."""
        return subscription in self._of.get(user, ())

    def add(self, user: str, subscription: str) -> None:
        """Add a subscription behind the others of its user, unless it is there."""
        self._of.setdefault(user, {}).setdefault(subscription)

    def take(self) -> str:
        """Remove and return the next subscription; the next turn of its user is behind all others."""
        user = next(iter(self._of))
        several = self._of.pop(user)
        subscription = next(iter(several))
        del several[subscription]
        if several:
            self._of[user] = several
        return subscription
