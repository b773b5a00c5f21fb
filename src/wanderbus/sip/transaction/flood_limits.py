"""Flood limits: how many requests one source may ask of us (SPEC C-20).

Each source, an IPv4 address or a /64 of IPv6, has a bucket of tokens that fills at a steady rate; a request takes one,
and a large one as many as it is larger than :data:`REQUEST_BYTES`, since reading costs time for every byte. The table
of buckets is bounded: a bucket that is full again is forgotten, for a fresh one would be the same, and while all of the
table is busy newcomers share one bucket. What is over the limit is dropped, but for now and then a 503 that tells an
honest client when to come back.

Sources where no user has been lately, strangers, have less, and a bucket that all of them share: a crowd of sources,
which may be forged, costs no more than that. Half of what is in it is for sources that ask as little as a newcomer
does, so that a few that ask much leave room for these.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import Final

import msgspec

from wanderbus.hosts import network_of
from wanderbus.refusal_table import OTHERS, Limited, Tally
from wanderbus.tokens import Tokens

REQUEST_BYTES: Final = 2_048
"""What a request may have for one token: a re-INVITE with its SDP and a few proxies' Vias."""


MODEST_PER_S: Final = 0.1
MODEST_BURST: Final = 5.0
"""Requests of a newcomer: a registration with its challenge, and copies of both."""


class FloodLimits(msgspec.Struct, frozen=True):
    """What one source IP address may ask."""

    requests_per_s: float = 500.0
    """Requests that may go on for ever."""

    burst_requests: float = 2_000.0
    """Requests that may come at once on top of it: many users may sit behind one address, and they all come back at
    the same second when a network does."""

    stranger_requests_per_s: float = 100.0
    """The same for a source where no user has proved to be within a day."""

    stranger_burst_requests: float = 400.0
    """Requests that may come at once from such a source."""

    strangers_requests_per_s: float = 400.0
    """Requests of all such sources together that may go on for ever."""

    strangers_burst_requests: float = 800.0
    """Requests of all such sources together that may come at once."""

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
    """Judges requests by the address they come from; ``refused`` is the reason that people read."""

    def __init__(
        self, limits: FloodLimits = DEFAULT_LIMITS, *, refused: str = "SIP request dropped, or refused with 503"
    ) -> None:
        self._refused = refused
        self._limits = limits
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._shared = _Bucket(limits)
        per_s, burst = limits.strangers_requests_per_s / 2, max(1.0, limits.strangers_burst_requests / 2)
        self._for_all = Tokens(per_s, burst)
        self._for_modest = Tokens(per_s, burst)
        self._tally = Tally()

    def __len__(self) -> int:
        return len(self._buckets)

    def judge(self, source_ip: str, now: float, size: int = 0, *, known: bool = True) -> Judgement:
        """Count a request of ``size`` bytes from ``source_ip`` at monotonic second ``now``; say what to do with it.

        A source is ``known`` where a user has proved to be lately.
        """
        network = network_of(source_ip)
        bucket = self._bucket(network, now)
        limit = self._exceeded(bucket, now, max(1.0, size / REQUEST_BYTES), known=known)
        if not limit:
            return Judgement.ADMITTED
        party = OTHERS if bucket is self._shared else network
        self._tally.note(f"flood.{limit}", party, self._refused)
        return Judgement.REFUSED if bucket.refusals.take(now) else Judgement.DROPPED

    def take_limited(self, now: float) -> list[Limited]:
        """Return what is to be reported of requests that were not admitted."""
        return self._tally.take(now)

    def _exceeded(self, bucket: _Bucket, now: float, cost: float, *, known: bool) -> str:
        """Take what a request costs; return the limit that is exceeded, empty if none is."""
        if known:
            return "" if bucket.requests.take(now, cost) else "requests_per_s"
        if not bucket.of_stranger.take(now, cost):
            return "stranger_requests_per_s"
        modest = bucket.modest.take(now, cost)
        if self._for_all.take(now, cost) or (modest and self._for_modest.take(now, cost)):
            return ""
        return "strangers_requests_per_s"

    def _bucket(self, network: str, now: float) -> _Bucket:
        known = self._buckets.get(network)
        if known is not None:
            self._buckets.move_to_end(network)
            return known
        if len(self._buckets) >= self._limits.sources_max and not self._forget_idlest(now):
            return self._shared
        fresh = self._buckets[network] = _Bucket(self._limits)
        return fresh

    def _forget_idlest(self, now: float) -> bool:
        """Drop the source that was silent for longest, if nothing is lost by it."""
        network, bucket = next(iter(self._buckets.items()))
        if not bucket.is_full(now):
            return False
        del self._buckets[network]
        return True


class _Bucket:
    """What one source may still ask, and how many refusals it may still hear."""

    __slots__ = ("modest", "of_stranger", "refusals", "requests")

    def __init__(self, limits: FloodLimits) -> None:
        self.requests = Tokens(limits.requests_per_s, limits.burst_requests)
        self.of_stranger = Tokens(
            min(limits.stranger_requests_per_s, limits.requests_per_s),
            min(limits.stranger_burst_requests, limits.burst_requests),
        )
        self.modest = Tokens(MODEST_PER_S, MODEST_BURST)
        self.refusals = Tokens(limits.refusals_per_s, max(1.0, limits.refusals_per_s))

    def is_full(self, now: float) -> bool:
        """Say whether a fresh one would be the same."""
        return all(each.is_full(now) for each in (self.requests, self.of_stranger, self.modest, self.refusals))
