"""Cache of recent replies: a repeated command gets the same reply and is not executed twice."""

from __future__ import annotations

from typing import Final

from wanderbus.machine import Address

KEPT_S: Final = 10.0
"""Time that a reply is kept, longer than proxies repeat a command: Kamailio does so five times, a second apart."""


class ReplyCache:
    """Up to ``most`` replies by proxy and cookie, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._replies: dict[tuple[Address, bytes], tuple[float, bytes]] = {}

    def __len__(self) -> int:
        return len(self._replies)

    def find(self, proxy: Address, cookie: bytes) -> bytes | None:
        """Return the reply to this command; None if it is not in the cache."""
        found = self._replies.get((proxy, cookie))
        return found[1] if found else None

    def remember(self, proxy: Address, cookie: bytes, reply: bytes, now: float) -> None:
        """Store a reply; if the cache is full, discard the oldest."""
        if len(self._replies) >= self._most:
            del self._replies[next(iter(self._replies))]
        self._replies[proxy, cookie] = (now, reply)

    def forget(self, now: float) -> None:
        """Discard replies that are too old to be needed."""
        while self._replies and now - self._replies[oldest := next(iter(self._replies))][0] > KEPT_S:
            del self._replies[oldest]
