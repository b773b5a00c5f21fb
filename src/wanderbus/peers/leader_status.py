"""State of this server's session at a leader, for people."""

from __future__ import annotations

import msgspec


class LeaderStatus(msgspec.Struct, frozen=True):
    """State of this server's session at a ``leader``."""

    leader: str
    is_linked: bool
    subscriptions: int
    """Subscriptions that this server wants there."""
    is_settled: bool
    """True if the leader has exactly these subscriptions."""
    waiting_publishes: int
    number: int
    """Number of the last event of the leader that is durable here."""
