"""How long to wait for an ACK: smoothed round trip, timeout and back-off (SPEC F-04, F-05, X15; RFC 6298).

Every confirmed packet gives a sample. Since a retransmission is a packet of its own number, a sample is never
ambiguous and Karn's rule is not needed (RFC 9002 4.2).
"""

from __future__ import annotations

from typing import Final

from wanderbus.rudp.config import RudpConfig

_DEVIATIONS: Final = 4.0
"""K of RFC 6298 2.3: how many deviations above the smoothed round trip the timeout lies."""

_TIME_THRESHOLD: Final = 9 / 8
"""kTimeThreshold of RFC 9002 6.1.2: round trips after which an overtaken packet is lost."""

_GRANULARITY_S: Final = 0.001
"""G of RFC 6298 2.3, kGranularity of RFC 9002 6.1.2, seconds: what the clock of an event loop is good for."""

_PERSISTENT_CONGESTION_TIMEOUTS: Final = 3
"""kPersistentCongestionThreshold of RFC 9002 7.6.1."""


class RoundTrip:
    """The estimate for one path; made anew when the path changes (RFC 9000 9.4)."""

    __slots__ = ("_config", "_deviation_s", "_latest_s", "measured_at", "smoothed_s", "timeout_s")

    def __init__(self, config: RudpConfig) -> None:
        self._config = config
        self._deviation_s = 0.0
        self._latest_s = 0.0
        self.measured_at: float | None = None
        """When the first sample was taken, None before."""
        self.smoothed_s: float | None = None
        self.timeout_s = config.initial_timeout_s

    def sample(self, rtt_s: float, now: float) -> None:
        """Take one measured round trip, in seconds."""
        config, smoothed_s = self._config, self.smoothed_s
        self._latest_s = rtt_s
        if smoothed_s is None:
            self.measured_at = now
            self.smoothed_s = smoothed_s = rtt_s
            self._deviation_s = rtt_s / 2
        else:
            error_s = rtt_s - smoothed_s
            self._deviation_s += config.rtt_deviation_gain * (abs(error_s) - self._deviation_s)
            self.smoothed_s = smoothed_s = smoothed_s + config.rtt_gain * error_s
        timeout_s = smoothed_s + max(_DEVIATIONS * self._deviation_s, _GRANULARITY_S)
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
        """Seconds for which everything has to be lost to call it persistent congestion (RFC 9002 7.6.1)."""
        return _PERSISTENT_CONGESTION_TIMEOUTS * self.timeout_s

    def backed_off_s(self, retries: int) -> float:
        """Return how long to wait for the ACK of a packet that repeats an earlier one for the ``retries``-th time."""
        if not retries:
            return self.timeout_s
        timeout_s, most_s = self.timeout_s, self._config.timeout_max_s
        for _ in range(retries):
            timeout_s *= self._config.backoff_factor
            if timeout_s >= most_s:
                return most_s
        return timeout_s
