"""Definition of an event that is about to be sent to other servers."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.machine import Output


class Sending(NamedTuple):
    """An event on its way to other servers: its header, encoded for its record, and what follows that record."""

    header: bytes
    outputs: list[Output]
    is_wanted: bool
    """True if another server gets the event."""
