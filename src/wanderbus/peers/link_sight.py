"""State of an open link as the check of its health sees it."""

from __future__ import annotations

from typing import NamedTuple


class LinkSight(NamedTuple):
    """State of an open link: the highest acknowledged packet, whether packets wait for that, and the round trip."""

    number: int
    acknowledged: int
    is_waiting: bool
    rtt_s: float | None
