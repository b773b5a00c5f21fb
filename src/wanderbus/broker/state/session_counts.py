"""Counts of sessions: durations of each one, and sums over all that never decrease (SPEC T-08, G-21, U-08).

A duration is counted by its magnitude, so that percentiles follow from it to within a factor of two. The counters of a
session go with it to other servers, and so do not add up to those of a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wanderbus.metrics import Durations

if TYPE_CHECKING:
    from wanderbus.broker.queues.queue import SubscriptionQueue
    from wanderbus.broker.state.rows import DeviceRow, SessionRow, SubscriptionRow
    from wanderbus.broker.state.state import BrokerState
    from wanderbus.records import Acknowledged


class Totals(msgspec.Struct):
    """Counts since the start of the server: of matches, as in a session's row, and durations of all sessions."""

    generated: int = 0
    delivered: int = 0
    restricted: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    acknowledgements: Durations = msgspec.field(default_factory=Durations)
    absences: Durations = msgspec.field(default_factory=Durations)


def count_takings(
    state: BrokerState,
    session: SessionRow,
    row: SubscriptionRow,
    queue: SubscriptionQueue | None,
    record: Acknowledged,
) -> None:
    """Count the time until a device acknowledged what waited for it; the caller stores the session."""
    if queue is None or row.subscription.device not in (None, record.device):
        return
    for entry in queue.notifications((row.cursors or {}).get(record.device, 0), record.number):
        session.acknowledgements.add(record.at_us - entry.queued_us)
        state.totals.acknowledgements.add(record.at_us - entry.queued_us)


def count_absence(state: BrokerState, device: DeviceRow, at_us: int) -> None:
    """Count the time for which a device of a session was away, which ends now."""
    session = next((each for each in state.sessions_of(device.user) if each.name == device.session), None)
    if session is not None and device.away_since_us is not None:
        session.absences.add(at_us - device.away_since_us)
        state.totals.absences.add(at_us - device.away_since_us)
        state.sessions.put(session.key, session)
