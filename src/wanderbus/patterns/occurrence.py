"""An event with its place and time, as a pattern takes it."""

from __future__ import annotations

import msgspec

from wanderbus.event import Event


class AcceptedEvent(msgspec.Struct, frozen=True):
    """An event that a server accepted: ``offset`` in its log, ``received_us`` by its clock, and its ``id`` as text."""

    event: Event
    offset: int
    received_us: int
    id: str = ""
