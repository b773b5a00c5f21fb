"""Metrics of a broker (SPEC U-08): counters since its start, and gauges of all sessions together.

The gauges take time linear in the sessions and devices, so whoever asks keeps the answer for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.requests import EngineRequests
from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.metrics import Sample, counted


class BrokerMetrics:
    """Samples of one broker."""

    def __init__(self, basics: Basics, phases: PhaseCounts, engine: EngineRequests) -> None:
        self._basics = basics
        self._phases = phases
        self._engine = engine

    def samples(self) -> Iterator[Sample]:
        """Yield the samples."""
        yield from self._counters()
        yield from self._gauges()
        for row in self._phases.rows():
            yield Sample("filtering_examined_total", row["examined"], (row["phase"],))
            yield Sample("filtering_held_back_total", row["held_back"], (row["phase"],))
        if (engine := self._engine.row()) is not None:
            yield Sample("engine_up", float(engine["state"] == "answers"))
            yield Sample("engine_records_behind", engine["records_behind"])

    def _counters(self) -> Iterator[Sample]:
        written, totals = self._basics.journal.written, self._basics.state.totals
        yield Sample("events_accepted_total", written[records.Published])
        yield Sample("events_arrived_total", written[records.Arrived])
        yield from counted("records_total", {str(kind.__struct_config__.tag): n for kind, n in written.items()})
        yield Sample("matches_generated_total", totals.generated)
        yield Sample("matches_delivered_total", totals.delivered)
        yield from counted("matches_dropped_total", totals.dropped)
        yield Sample("matches_restricted_total", totals.restricted)
        yield Sample("acknowledgement_seconds", totals.acknowledgements)
        yield Sample("absence_seconds", totals.absences)

    def _gauges(self) -> Iterator[Sample]:
        state, conditions = self._basics.state, self._basics.conditions
        present = [each for each in state.sessions.values() if not each.is_fenced]
        yield Sample("matches_queued", sum(each.queued for each in present))
        yield Sample("queued_bytes", state.queued_bytes)
        yield Sample("queue_longest", max((each.queued for each in present), default=0))
        oldest_us = min((at_us for each in present if (at_us := self._oldest_us(each.key)) is not None), default=None)
        yield Sample("queue_oldest_seconds", 0.0 if oldest_us is None else max(0, state.wall_us - oldest_us) / 1e6)
        yield Sample("sessions", len(present))
        yield Sample("subscriptions", len(state.subscriptions))
        statuses = Counter({"CONNECTED": 0, "DISCONNECTED": 0})
        statuses.update(each.status for each in state.devices.values())
        yield from counted("devices", {status.lower(): count for status, count in statuses.items()})
        yield Sample("links", sum(1 for _ in self._basics.links.all()))
        yield Sample("draining", float(state.is_draining))
        yield Sample("disk_full", float(conditions.is_disk_full))

    def _oldest_us(self, session: str) -> int | None:
        """Return the time of the oldest notification that waits in a session, None if nothing does."""
        queue = self._basics.state.queue.get(session)
        oldest = [] if queue is None else [first for each in queue.queues.values() if (first := each.oldest())]
        return min((each.queued_us for each in oldest), default=None)
