"""Limit on connections per second and source: a TLS handshake costs a millisecond before the peer is known."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from wanderbus.tokens import TokenBucket

SOURCES_MAX: Final = 10_000
"""Sources that are counted separately; beyond that, the one that connected longest ago is forgotten."""


class ConnectionRate:
    """Admits ``per_s`` connections per second from each source, and a burst of ``burst``."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._sources: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def admits(self, source: str, now: float) -> bool:
        """Count a connection from ``source`` at monotonic second ``now``; return whether the rate permits it."""
        tokens = self._sources.pop(source, None) or TokenBucket(self._per_s, self._burst)
        self._sources[source] = tokens
        if len(self._sources) > SOURCES_MAX:
            self._sources.popitem(last=False)
        return tokens.take(now)
