"""All gold tables of a period, made of the tables of a lake or of several (SPEC T-08)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame

from wanderbus.pipeline.analytics.counts import blocked, device_counts, drops, session_counts, subject_counts
from wanderbus.pipeline.analytics.coverings import compared, coverings, uncompared
from wanderbus.pipeline.analytics.entries import entries, marks, owners
from wanderbus.pipeline.analytics.group_moves import group_moves
from wanderbus.pipeline.analytics.lake_tables import EVERYTHING, LakeTables, Period
from wanderbus.pipeline.analytics.latencies import latencies
from wanderbus.pipeline.analytics.queue_depths import queue_depths
from wanderbus.pipeline.analytics.settled import absences, acknowledgements, handovers, matches, moves, settled
from wanderbus.pipeline.analytics.subscription_counts import subscription_counts

MINUTE_US: Final = 60_000_000


class GoldTables:
    """Gold tables of a period, by name in ``frames``; a context whose end frees the memory that they share.

    ``bucket_us`` is the time of one row of queue depths. ``every_match`` are the matches up to the end of the period,
    those from before it included.
    """

    def __init__(self, tables: LakeTables, period: Period = EVERYTHING, *, bucket_us: int = MINUTE_US) -> None:
        marked = tables.keep(marks(tables.records, tables.homes))
        every = entries(tables.notifications, tables.deliveries, tables.sessions, tables.subscriptions, marked)
        rows = tables.keep(settled(every, tables.servers, is_small=tables.is_small))
        filters = tables.keep(compared(tables.subscriptions))
        self._cached = (marked, rows, filters, *tables.shared)
        taken = acknowledgements(rows, tables.accepted)
        self.tables, self.period = tables, period
        self.every_match = matches(rows)
        self.frames: dict[str, DataFrame] = {
            "matches": period.within(self.every_match),
            "acknowledgements": period.within(taken, "matched_us"),
            "queue_depths": period.after_begin(queue_depths(self.every_match, bucket_us), bucket_us),
            "absences": period.overlapping(absences(rows)),
            "moves": period.within(moves(rows, taken), "moved_us"),
            "handovers": period.within(handovers(rows, tables.accepted), "begun_us"),
            "group_moves": period.within(group_moves(tables.records, tables.writers), "begun_us"),
            "coverings": coverings(filters),
            "uncompared_filters": uncompared(filters),
        }
        self.frames |= self._counts(tables, period, period.within(blocked(marked, owners(tables.subscriptions))))

    def _counts(self, tables: LakeTables, period: Period, restricted: DataFrame) -> Mapping[str, DataFrame]:
        found, events, seen = self.frames, period.within(tables.events), period.within(tables.seen)
        matched, taken = found["matches"], found["acknowledgements"]
        return {
            "session_counts": session_counts(matched, period.within(tables.notifications), restricted, tables.sessions),
            "drops": drops(matched),
            "latencies": latencies(taken),
            "subject_counts": subject_counts(events, matched),
            "device_counts": device_counts(events, taken, found["absences"], found["moves"]),
            "subscription_counts": subscription_counts(tables.subscriptions, seen, matched, restricted),
        }

    def __enter__(self) -> GoldTables:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._cached:
            each.unpersist()
