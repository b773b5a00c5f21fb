"""Round trip estimate, ACK timeout and back-off (SPEC F-04, F-05, X15; RFC 6298).

Every acknowledged packet gives a sample. A retransmission has a packet number of its own, so a sample is never
ambiguous and Karn's rule is not needed (RFC 9002 4.2).
"""

from __future__ import annotations

from typing import Final

from wanderbus.parameters.transports import RudpConfig

_DEVIATIONS: Final = 4.0
"""K of RFC 6298 2.3: number of deviations between smoothed round trip and timeout."""

_TIME_THRESHOLD: Final = 9 / 8
"""kTimeThreshold of RFC 9002 6.1.2: round trips after which an overtaken packet is lost."""

_MARGIN: Final = _TIME_THRESHOLD - 1
"""Least share of the round trip that the timeout adds to it: the deviation of a steady path falls to nothing, and a
peer that answers some milliseconds late, because it is busy or delays an ACK, must not count as a loss."""

_GRANULARITY_S: Final = 0.001
"""G of RFC 6298 2.3, kGranularity of RFC 9002 6.1.2, seconds: resolution of an event loop's clock."""

_PERSISTENT_CONGESTION_TIMEOUTS: Final = 3
"""kPersistentCongestionThreshold of RFC 9002 7.6.1."""


class RoundTrip:
    """Estimate for one path; created again when the path changes (RFC 9000 9.4)."""

    __slots__ = ("_config", "_deviation_s", "_latest_s", "least_s", "measured_at", "smoothed_s", "timeout_s")

    def __init__(self, config: RudpConfig) -> None:
        self._config = config
        self._deviation_s = 0.0
        self._latest_s = 0.0
        self.least_s = 0.0
        """Least sample, in seconds; 0 before the first."""
        self.measured_at: float | None = None
        """Time of the first sample, None before."""
        self.smoothed_s: float | None = None
        self.timeout_s = config.initial_timeout_s

    def sample(self, rtt_s: float, now: float) -> None:
        """Add a measured round trip, in seconds."""
        config, smoothed_s = self._config, self.smoothed_s
        self._latest_s = rtt_s
        if smoothed_s is None:
            self.measured_at = now
            self.smoothed_s = smoothed_s = self.least_s = rtt_s
            self._deviation_s = rtt_s / 2
        else:
            error_s = rtt_s - smoothed_s
            self.least_s = min(self.least_s, rtt_s)
            self._deviation_s += config.rtt_deviation_gain * (abs(error_s) - self._deviation_s)
            self.smoothed_s = smoothed_s = smoothed_s + config.rtt_gain * error_s
        timeout_s = smoothed_s + max(_DEVIATIONS * self._deviation_s, _MARGIN * smoothed_s, _GRANULARITY_S)
        least_s, most_s = config.timeout_min_s, config.timeout_max_s
        self.timeout_s = least_s if timeout_s < least_s else most_s if timeout_s > most_s else timeout_s

    @property
    def loss_delay_s(self) -> float:
        """Seconds after which a packet that later ones overtook is lost (RFC 9002 6.1.2)."""
        if self.smoothed_s is None:
            return self.timeout_s
        return max(_TIME_THRESHOLD * max(self.smoothed_s, self._latest_s), _GRANULARITY_S)

    @property
    def persistent_congestion_s(self) -> float:
        """Return the period without any ACK that counts as persistent congestion, seconds (RFC 9002 7.6.1)."""
        return _PERSISTENT_CONGESTION_TIMEOUTS * self.timeout_s

    def backed_off_s(self, retries: int) -> float:
        """Return the ACK timeout of a packet that is sent for the ``retries``-th time after the first."""
        if not retries:
            return self.timeout_s
        timeout_s, most_s = self.timeout_s, self._config.timeout_max_s
        for _ in range(retries):
            timeout_s *= self._config.backoff_factor
            if timeout_s >= most_s:
                return most_s
        return timeout_s
