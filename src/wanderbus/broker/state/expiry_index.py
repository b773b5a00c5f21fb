"""Index of subscriptions by owner and expiry; no query scans all of them."""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush


class ExpiryIndex:
    """Ids with their users, and optionally an expiry in µs since the Unix epoch.

    A changed or dropped expiry stays in the heap until it is due, or until most of the heap is outdated.
    """

    def __init__(self) -> None:
        self._of_user: dict[str, dict[str, None]] = {}
        self._until_us: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, identity: str, user: str, until_us: int | None) -> None:
        """Add ``identity``, or change its expiry."""
        self._of_user.setdefault(user, {})[identity] = None
        if until_us is None:
            self._until_us.pop(identity, None)
        elif self._until_us.get(identity) != until_us:
            self._until_us[identity] = until_us
            heappush(self._heap, (until_us, identity))
        self._bound_heap()

    def drop(self, identity: str, user: str) -> None:
        """Remove ``identity``; does nothing for an unknown one."""
        identities = self._of_user.get(user, {})
        identities.pop(identity, None)
        if not identities:
            self._of_user.pop(user, None)
        self._until_us.pop(identity, None)
        self._bound_heap()

    def of_user(self, user: str) -> Collection[str]:
        """Return the ids of ``user``, in the order in which they were added."""
        return self._of_user.get(user, {}).keys()

    @property
    def next_us(self) -> int | None:
        """Return the earliest expiry, None if there is none."""
        heap = self._heap
        while heap and self._until_us.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_us: int, most: int) -> list[str]:
        """Return at most ``most`` ids that have expired at ``now_us``, the earliest first.

        Their expiry is removed from the index; the caller drops the ids.
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
