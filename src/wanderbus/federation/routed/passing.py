"""Messages that the own domain passes on between two others: how many may wait at the next one (SPEC M-04).

A message that would be too much is dropped. The ends of its link notice, and open another one.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

WAITING_BYTES_MAX: Final = 2**23
"""Bytes that wait at one domain; half as much as the link there may have unconfirmed."""

SENDER_BYTES_MAX: Final = 2**22
"""Bytes of one domain that wait at others: it cannot take the place of all."""

MESSAGE_BYTES: Final = 256
"""Bytes that each message counts beside its own: many small ones cost memory, too."""


class PassedOn:
    """Messages that were passed on, and which the next domain has not finished with."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[str, int]]] = {}
        """By the next domain: the domain that a message came from, and what it counts."""
        self._at: Counter[str] = Counter()
        self._of: Counter[str] = Counter()

    def may_pass(self, source: str, target: str, size: int) -> bool:
        """Return whether a message may be passed on now, and note it then."""
        size += MESSAGE_BYTES
        if self._at[target] + size > WAITING_BYTES_MAX or self._of[source] + size > SENDER_BYTES_MAX:
            return False
        self._waiting.setdefault(target, deque()).append((source, size))
        self._at[target] += size
        self._of[source] += size
        return True

    def taken(self, target: str, count: int) -> None:
        """Note that a domain has finished with the next ``count`` messages."""
        waiting = self._waiting.get(target, deque())
        for _ in range(min(count, len(waiting))):
            source, size = waiting.popleft()
            self._at[target] -= size
            self._of[source] -= size

    def link_down(self, target: str) -> None:
        """Forget what waits at a domain: the link there has closed."""
        self.taken(target, len(self._waiting.get(target, ())))
