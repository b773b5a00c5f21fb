"""Durations that a session counts: until its devices acknowledge, and while they are away (SPEC T-08, G-21).

A duration is counted by its magnitude, so that percentiles follow from it to within a factor of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from wanderbus.broker.queues.queue import SubscriptionQueue
    from wanderbus.broker.state.rows import DeviceRow, SessionRow, SubscriptionRow
    from wanderbus.broker.state.state import BrokerState
    from wanderbus.records import Acknowledged


class Durations(msgspec.Struct):
    """Sum of durations in microseconds, and their number by magnitude: by the bits that the microseconds take."""

    sum_us: int = 0
    by_bits: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, duration_us: int) -> None:
        """Count a duration; one that a clock made negative counts as none."""
        duration_us = max(0, duration_us)
        self.sum_us += duration_us
        bits = duration_us.bit_length()
        self.by_bits[bits] = self.by_bits.get(bits, 0) + 1

    def add_all(self, others: Durations) -> None:
        """Count the durations of another count."""
        self.sum_us += others.sum_us
        for bits, count in others.by_bits.items():
            self.by_bits[bits] = self.by_bits.get(bits, 0) + count


def count_takings(
    session: SessionRow, row: SubscriptionRow, queue: SubscriptionQueue | None, record: Acknowledged
) -> None:
    """Count the time until a device acknowledged what waited for it; the caller stores the session."""
    if queue is None or row.subscription.device not in (None, record.device):
        return
    for entry in queue.notifications((row.cursors or {}).get(record.device, 0), record.number):
        session.acknowledgements.add(record.at_us - entry.queued_us)


def count_absence(state: BrokerState, device: DeviceRow, at_us: int) -> None:
    """Count the time for which a device of a session was away, which ends now."""
    session = next((each for each in state.sessions_of(device.user) if each.name == device.session), None)
    if session is not None and device.away_since_us is not None:
        session.absences.add(at_us - device.away_since_us)
        state.sessions.put(session.key, session)
