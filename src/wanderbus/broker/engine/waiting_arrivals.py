"""Arrivals that wait for the matching engine, to report whether a subscription matched them (SPEC B-05, N-01, T-06)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import Final

from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.state.journal import Journal
from wanderbus.machine import Output

WAITING_MAX: Final = 65_536
"""Arrivals that are remembered; older ones are left out of the figures, as are those from before a restart."""


class WaitingArrivals:
    """The arrivals, by the offsets of their records."""

    def __init__(self, journal: Journal, phases: PhaseCounts) -> None:
        self._journal = journal
        self._phases = phases
        self._waiting: deque[tuple[int, Callable[[bool], Output] | None]] = deque(maxlen=WAITING_MAX)

    def add(self, offset: int, report: Callable[[bool], Output] | None) -> None:
        """Remember the arrival at ``offset``; ``report`` makes the output that tells whether it was matched."""
        self._waiting.append((offset, report))

    def reach(self, end: int, matched: Container[int]) -> None:
        """Report the arrivals below ``end``; ``matched`` has the offsets of those that a subscription matched."""
        while self._waiting and self._waiting[0][0] < end:
            offset, report = self._waiting.popleft()
            is_matched = offset in matched
            self._phases.at_destination(is_matched=is_matched)
            if report is not None:
                self._journal.emit_now(report(is_matched))
