"""Flood limits: largest request rate of each source (SPEC C-20).

Each source, an IPv4 address or a /64 of IPv6, has a token bucket that fills at a steady rate. A request costs one
token, a large one as many as its multiple of :data:`REQUEST_BYTES`, since parsing takes time for every byte. The table
of buckets is bounded. A full bucket is deleted, because a new one would be equal. While no bucket can be deleted, new
sources share one bucket. Requests over the limit are discarded; from time to time one is refused with 503 and
Retry-After, for honest clients.

Sources from which no user has logged in recently are strangers: they have lower limits, and a bucket common to all of
them. So a large number of sources, which may be forged, cannot exceed that. Half of that bucket is reserved for sources
that send no more than a newcomer does, so that a few heavy senders leave room for them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from wanderbus.hosts import network_of
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.refusal_table import OTHERS, Tally
from wanderbus.refusals import Limited
from wanderbus.sip.transaction.transaction_states import Judgement
from wanderbus.tokens import TokenBucket

REQUEST_BYTES: Final = 2_048
"""Bytes of a request for one token: a re-INVITE with its SDP and the Vias of a few proxies."""

MODEST_PER_S: Final = 0.1
MODEST_BURST: Final = 5.0
"""Requests of a newcomer: a registration with its challenge, and copies of both."""

DEFAULT_LIMITS = FloodLimits()


class FloodGuard:
    """Decides on requests by their source address; ``refused`` is the reason for logs."""

    def __init__(
        self, limits: FloodLimits = DEFAULT_LIMITS, *, refused: str = "SIP request discarded, or refused with 503"
    ) -> None:
        self._refused = refused
        self._limits = limits
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._shared = _Bucket(limits)
        per_s, burst = limits.strangers_requests_per_s / 2, max(1.0, limits.strangers_burst_requests / 2)
        self._for_all = TokenBucket(per_s, burst)
        self._for_modest = TokenBucket(per_s, burst)
        self._tally = Tally()

    def __len__(self) -> int:
        return len(self._buckets)

    def judge(self, source_ip: str, now: float, size: int = 0, *, known: bool = True) -> Judgement:
        """Count a request of ``size`` bytes from ``source_ip`` at monotonic second ``now``; return the decision.

        ``known``: a user has logged in from the source recently.
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
        """Return the reports on requests that were not admitted."""
        return self._tally.take(now)

    def _exceeded(self, bucket: _Bucket, now: float, cost: float, *, known: bool) -> str:
        """Charge the cost of a request; return the exceeded limit, empty if none is."""
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
        if len(self._buckets) >= self._limits.sources_max and not self._remove_longest_idle(now):
            return self._shared
        fresh = self._buckets[network] = _Bucket(self._limits)
        return fresh

    def _remove_longest_idle(self, now: float) -> bool:
        """Remove the longest idle source, if its bucket is full."""
        network, bucket = next(iter(self._buckets.items()))
        if not bucket.is_full(now):
            return False
        del self._buckets[network]
        return True


class _Bucket:
    """Remaining requests and 503 responses of one source."""

    __slots__ = ("modest", "of_stranger", "refusals", "requests")

    def __init__(self, limits: FloodLimits) -> None:
        self.requests = TokenBucket(limits.requests_per_s, limits.burst_requests)
        self.of_stranger = TokenBucket(
            min(limits.stranger_requests_per_s, limits.requests_per_s),
            min(limits.stranger_burst_requests, limits.burst_requests),
        )
        self.modest = TokenBucket(MODEST_PER_S, MODEST_BURST)
        self.refusals = TokenBucket(limits.refusals_per_s, max(1.0, limits.refusals_per_s))

    def is_full(self, now: float) -> bool:
        """Return whether the bucket equals a new one."""
        return all(each.is_full(now) for each in (self.requests, self.of_stranger, self.modest, self.refusals))
