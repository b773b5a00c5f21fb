"""Rows of a leader's answer to a server that reads for a subscription (SPEC T-05, K-03)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from wanderbus.event import Event, EventId, Number


class PageRow(msgspec.Struct, frozen=True):
    """A row: the log and the end of what was read, the lowest number that is kept, or an event."""

    incarnation: Number = 0
    epoch: Number = 0
    end: Number = 0
    is_over: bool = False
    led_under: Number = 0
    failed: str = ""
    kept_from: Number = 0
    number: Number = 0
    id: EventId | None = None
    at_us: int = 0
    undecided: str = ""
    event: Event | None = None


Rows: TypeAlias = Sequence[PageRow]
