"""Pace of one user's subscription requests."""

from __future__ import annotations

from collections import deque

import msgspec

from wanderbus import protocol


class SubscribePace(msgspec.Struct):
    """The pace of one user: the time at which the characters read so far are paid for, and the waiting requests."""

    paid_at: float
    waiting: deque[tuple[int, protocol.PacedRequest, int]] = msgspec.field(default_factory=deque)
    """Links and their requests, with the characters of each."""
    characters: int = 0
