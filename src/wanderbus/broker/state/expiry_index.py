"""Subscriptions by the user they are of and by the time that is up: no question here looks at all of them."""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush


class Roster:
    """Ids with their users, and with a time, in µs since the Unix epoch, for those that have one.

    A time that is changed or dropped stays in the heap until it comes up, or until most of the heap is such.
    """

    def __init__(self) -> None:
        self._of_user: dict[str, dict[str, None]] = {}
        self._until_us: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, identity: str, user: str, until_us: int | None) -> None:
        """Take up ``identity``, or give it another time."""
        self._of_user.setdefault(user, {})[identity] = None
        if until_us is None:
            self._until_us.pop(identity, None)
        elif self._until_us.get(identity) != until_us:
            self._until_us[identity] = until_us
            heappush(self._heap, (until_us, identity))
        self._bound_heap()

    def drop(self, identity: str, user: str) -> None:
        """Forget ``identity``; no harm if it is not known."""
        identities = self._of_user.get(user, {})
        identities.pop(identity, None)
        if not identities:
            self._of_user.pop(user, None)
        self._until_us.pop(identity, None)
        self._bound_heap()

    def of_user(self, user: str) -> Collection[str]:
        """Return the ids of ``user``, in the order in which they came."""
        return self._of_user.get(user, {}).keys()

    def due(self, now_us: int, most: int) -> list[str]:
        """Return ids whose time is up at ``now_us``, ``most`` at most, first those that have been so for longest.

        They have no time any more: the caller drops them.
        """
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now_us and len(found) < most:
            until_us, identity = heappop(self._heap)
            if self._until_us.get(identity) == until_us:
                del self._until_us[identity]
                found.append(identity)
        return found

    def _bound_heap(self) -> None:
        if len(self._heap) > 2 * len(self._until_us) + 64:
            self._heap = [(until_us, identity) for identity, until_us in self._until_us.items()]
            heapify(self._heap)
