"""Failure detectors that an application could write."""

from __future__ import annotations

import math

from wanderbus.api.detecting import Observed, Verdict


class ThreeProbes:
    """Detector that probes every ``interval_s`` and gives up after three probes without any arrival."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self.asked: list[Observed] = []

    def judge(self, observed: Observed) -> Verdict:
        self.asked.append(observed)
        if observed.probes >= 3:
            return Verdict("gone")
        return Verdict("probe", ask_at=observed.now + self._interval_s)


class Patient:
    """Detector that gives up after ``patience_s`` without an answer, whatever happened."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s

    def judge(self, observed: Observed) -> Verdict:
        since = observed.waiting_since
        if since is not None and observed.now >= since + self._patience_s:
            return Verdict("gone")
        return Verdict(overdue_s=1.0)


class Accrual:
    """Detector that compares the silence with the intervals between earlier arrivals (phi accrual)."""

    def __init__(self, threshold: float = 8.0, interval_s: float = 1.0) -> None:
        self._threshold = threshold
        self._interval_s = interval_s
        self._intervals: list[float] = []
        self._arrived_at: float | None = None

    def judge(self, observed: Observed) -> Verdict:
        arrived_at = observed.arrived_at
        if arrived_at is not None and arrived_at != self._arrived_at:
            if self._arrived_at is not None:
                self._intervals = [*self._intervals[-99:], arrived_at - self._arrived_at]
            self._arrived_at = arrived_at
        if self._phi(observed.now) > self._threshold:
            return Verdict("gone")
        return Verdict("probe", ask_at=observed.now + self._interval_s)

    def _phi(self, now: float) -> float:
        """Return the negative logarithm of the probability that a live peer is silent for so long."""
        if self._arrived_at is None or len(self._intervals) < 3:
            return 0.0
        mean_s = sum(self._intervals) / len(self._intervals)
        return (now - self._arrived_at) / (mean_s * math.log(10))
