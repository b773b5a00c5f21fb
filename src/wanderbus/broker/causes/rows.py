"""Rows of the causes in other domains, and the fields of an event from which they come."""

from __future__ import annotations

import msgspec

from wanderbus.event import EventId


class CauseRow(msgspec.Struct, frozen=True, array_like=True):
    """Place of the last event of a server that is for a domain, and when this server has learnt of it."""

    incarnation: int
    number: int
    at_us: int


class EventFields(msgspec.Struct):
    """The fields of an event that say what precedes it."""

    origin: EventId | None = None
    past: bytes = b""
