"""How long to wait for an ACK: smoothed round trip, timeout and back-off (SPEC F-04, F-05, X15; RFC 6298).

Every confirmed packet gives a sample. Since a retransmission is a packet of its own number, a sample is never
ambiguous and Karn's rule is not needed (RFC 9002 4.2).
"""

from __future__ import annotations

from wanderbus.rudp.config import RudpConfig

_DEVIATIONS = 4.0
"""K of RFC 6298 2.3: how many deviations above the smoothed round trip the timeout lies."""


class RoundTrip:
    """The estimate for one path; made anew when the path changes (RFC 9000 9.4)."""

    def __init__(self, config: RudpConfig) -> None:
        self._config = config
        self._deviation_s = 0.0
        self.smoothed_s: float | None = None
        self.timeout_s = config.initial_timeout_s

    def sample(self, rtt_s: float) -> None:
        """Take one measured round trip, in seconds."""
        config = self._config
        if self.smoothed_s is None:
            self.smoothed_s = rtt_s
            self._deviation_s = rtt_s / 2
        else:
            error_s = rtt_s - self.smoothed_s
            self._deviation_s += config.rtt_deviation_gain * (abs(error_s) - self._deviation_s)
            self.smoothed_s += config.rtt_gain * error_s
        timeout_s = self.smoothed_s + _DEVIATIONS * self._deviation_s
        self.timeout_s = min(max(timeout_s, config.timeout_min_s), config.timeout_max_s)

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
