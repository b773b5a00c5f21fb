"""Flood limits: how many requests one source may ask of us (SPEC C-20).

Each source, an IPv4 address or a /64 of IPv6, has a bucket of tokens that fills at a steady rate; a request takes one,
and a large one as many as it is larger than :data:`REQUEST_BYTES`, since reading costs time for every byte. The table
of buckets is bounded: a bucket that is full again is forgotten, for a fresh one would be the same, and while all of the
table is busy newcomers share one bucket. What is over the limit is dropped, but for now and then a 503 that tells an
honest client when to come back.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import Final

import msgspec

from wanderbus.hosts import network_of
from wanderbus.sip.tokens import Tokens

REQUEST_BYTES: Final = 2_048
"""What a request may have for one token: a re-INVITE with its SDP and a few proxies' Vias."""


class FloodLimits(msgspec.Struct, frozen=True):
    """What one source IP address may ask."""

    requests_per_s: float = 500.0
    """Requests that may go on for ever."""

    burst_requests: float = 2_000.0
    """Requests that may come at once on top of it: many users may sit behind one address, and they all come back at
    the same second when a network does."""

    refusals_per_s: float = 1.0
    """Bounds the 503s to each source."""

    sources_max: int = 10_000
    """Addresses told apart."""


DEFAULT_LIMITS = FloodLimits()


class Judgement(Enum):
    """What to do with a request."""

    ADMITTED = auto()
    REFUSED = auto()
    """Answer 503 with Retry-After (RFC 3261 21.5.4)."""
    DROPPED = auto()


class FloodGuard:
    """Judges requests by the address they come from."""

    def __init__(self, limits: FloodLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._shared = _Bucket(limits)

    def __len__(self) -> int:
        return len(self._buckets)

    def judge(self, source_ip: str, now: float, size: int = 0) -> Judgement:
        """Count a request of ``size`` bytes from ``source_ip`` at monotonic second ``now``; say what to do with it."""
        bucket = self._bucket(network_of(source_ip), now)
        if bucket.requests.take(now, max(1.0, size / REQUEST_BYTES)):
            return Judgement.ADMITTED
        return Judgement.REFUSED if bucket.refusals.take(now) else Judgement.DROPPED

    def _bucket(self, source_ip: str, now: float) -> _Bucket:
        known = self._buckets.get(source_ip)
        if known is not None:
            self._buckets.move_to_end(source_ip)
            return known
        if len(self._buckets) >= self._limits.sources_max and not self._forget_idlest(now):
            return self._shared
        fresh = self._buckets[source_ip] = _Bucket(self._limits)
        return fresh

    def _forget_idlest(self, now: float) -> bool:
        """Drop the source that was silent for longest, if nothing is lost by it."""
        source_ip, bucket = next(iter(self._buckets.items()))
        if not (bucket.requests.is_full(now) and bucket.refusals.is_full(now)):
            return False
        del self._buckets[source_ip]
        return True


class _Bucket:
    """What one source may still ask, and how many refusals it may still hear."""

    def __init__(self, limits: FloodLimits) -> None:
        self.requests = Tokens(limits.requests_per_s, limits.burst_requests)
        self.refusals = Tokens(limits.refusals_per_s, max(1.0, limits.refusals_per_s))
