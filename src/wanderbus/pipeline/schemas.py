"""The columns of the pipeline's tables: log records as rows, and the lake (SPEC T-02, T-03).

Times are int64 microseconds since the Unix epoch throughout: timestamps would depend on zones and lose their
exactness in pandas.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa

from wanderbus.event import Event
from wanderbus.records import AnyRecord, Published

LOG_SCHEMA: Final = (
    "offset bigint, at_us bigint, kind string, user string, session string, device string, subject string, "
    "record string"
)
"""One row per log record. ``record`` is the whole record as JSON; the other columns are extracted from it."""

LOG_ARROW_SCHEMA: Final = pa.schema(
    [("offset", pa.int64()), ("at_us", pa.int64())]
    + [(name, pa.string()) for name in ("kind", "user", "session", "device", "subject", "record")]
)
"""The same for Arrow batches."""

NOTIFIED_TYPE: Final = "array<struct<user: string, session: string, number: bigint, subscriptions: array<string>>>"
"""The notifications generated of one event, in order of :class:`wanderbus.records.Notified`."""

LAKE_SCHEMA: Final = (
    "offset bigint, at_us bigint, user string, session string, device string, subject string, "
    "event_id string, epoch bigint, number bigint, first bigint, last bigint, reason string, status string, "
    "address string, "
    f"published_us bigint, attributes variant, notified {NOTIFIED_TYPE}, record string, kind string, date date"
)
"""The lake: a record's own fields as typed columns, an event's attributes as VARIANT, partitioned by the last two."""

_json = msgspec.json.Encoder()


def log_row(offset: int, record: AnyRecord) -> tuple[Any, ...]:
    """Return the row of :data:`LOG_SCHEMA` for ``record``; infinite numbers become null, because JSON cannot represent
    them.
    """
    event = None
    if isinstance(record, Published):
        event = record.event
        record = _readable(record, event)
    source = _source(record)
    return (
        offset,
        record.at_us,
        record.__struct_config__.tag,
        getattr(source, "owner", None) or getattr(source, "user", None),
        getattr(source, "session", None),
        getattr(source, "device", None),
        event.subject if event is not None else getattr(source, "subject", None),
        _json.encode(record).decode(),
    )


def _source(record: AnyRecord) -> object:
    """Return the part of a record that names the user, the session and the device."""
    if isinstance(record, Published):
        return record.acceptance
    subscription = getattr(record, "subscription", None)
    return record if subscription is None or isinstance(subscription, str) else subscription


def _readable(published: Published, event: Event) -> Published:
    """Return the record with its event as JSON."""
    acceptance = msgspec.structs.replace(published.acceptance, event=msgspec.Raw(_json.encode(event)))
    return msgspec.structs.replace(published, acceptance=acceptance)
