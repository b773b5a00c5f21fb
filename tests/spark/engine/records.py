"""Logs with events for the engine and changes of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.published import published
from wanderbus.broker.state.exported_session import ExportedSession, encode_export
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow
from wanderbus.event import Event, EventId
from wanderbus.protocol import encode_event
from wanderbus.records import SPARK, Arrival, Arrived, Published, Record, SessionImported, Started, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name
from wanderbus.subscription import Subscription

SERVER: Final = "wb"
INCARNATION: Final = 1
OWNER: Final = "sip:ann@example.org"


def started() -> Started:
    """Return the record that identifies the log."""
    return Started(at_us=1, server=SERVER, incarnation=INCARNATION)


def for_engine(event: Event, number: int, at_us: int = 0) -> Published:
    """Return the record of an event that the engine matches."""
    return msgspec.structs.replace(published(event, number=number, at_us=at_us), engine=SPARK)


def arrived(event: Event) -> Arrived:
    """Return the record of an event of another server that the engine matches."""
    arrival = Arrival("north", 1, 1, 0, EventId("north", 3, 7), 0, msgspec.Raw(encode_event(event)))
    return Arrived(at_us=0, arrival=arrival, engine=SPARK)


def subscription(identity: str, subject: str, expression: str, language: str = "eci", **more: Any) -> Subscription:
    """Return a subscription of :data:`OWNER`."""
    return Subscription(identity, OWNER, more.pop("session", "default"), subject, expression, language=language, **more)


def imported(session: str, subscriptions: Sequence[Subscription]) -> SessionImported:
    """Return the record of a session that comes from another server with these subscriptions."""
    rows = tuple(SubscriptionRow(each, number) for number, each in enumerate(subscriptions, 1))
    exported = ExportedSession(SessionRow(OWNER, session, epoch=1), rows, (), (), (), (), ())
    return SessionImported(at_us=0, user=OWNER, session=session, owner_epoch=2, export=encode_export(exported))


def write_log(directory: Path, records: Sequence[Record], per_segment: int = 1_000_000) -> Path:
    """Write a log as a server does; return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(records), per_segment):
        frames = (
            pack_frame(offset, offset, encode_record(record))
            for offset, record in enumerate(records[first : first + per_segment], first)
        )
        (directory / segment_name(first)).write_bytes(HEADER + b"".join(frames))
    (directory / HIGH_WATER).write_bytes(pack_mark(len(records)))
    return directory


def is_encodable(event: Event) -> bool:
    """Return whether an event can be published: all its dates are of the calendar in UTC."""
    try:
        encode_event(event)
    except OverflowError:
        return False
    return True
