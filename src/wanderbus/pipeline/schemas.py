"""Columns of the pipeline's tables (SPEC T-03).

Times are int64 microseconds since the Unix epoch throughout: timestamps would depend on zones and lose their
exactness in pandas.
"""

from __future__ import annotations

from typing import Final

NOTIFIED_TYPE: Final = "array<struct<user: string, session: string, number: bigint, subscriptions: array<string>>>"
"""The notifications generated of one event, in order of :class:`wanderbus.records.Notified`."""

LAKE_SCHEMA: Final = (
    "offset bigint, at_us bigint, user string, session string, device string, subject string, "
    "event_id string, epoch bigint, number bigint, first bigint, last bigint, reason string, status string, "
    "address string, "
    f"published_us bigint, attributes variant, notified {NOTIFIED_TYPE}, record string, kind string, date date"
)
"""The lake: a record's own fields as typed columns, an event's attributes as VARIANT, partitioned by the last two."""
