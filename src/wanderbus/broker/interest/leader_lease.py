"""Lease of a server on the filters of a subject that another server leads (SPEC N-02)."""

from __future__ import annotations

import msgspec

from wanderbus.protocol.leased_filters import LeasedFilters


class WaitingRequest(msgspec.Struct, frozen=True):
    """Request of the agent on ``link`` that waits for a leader."""

    link: int
    subject: str
    number: int


class LeaderLease(LeasedFilters, kw_only=True):
    """Lease of this server on the filters of one subject, at ``leader``."""

    leader: str
    waiting: dict[int, WaitingRequest] = msgspec.field(default_factory=dict)
    """Requests of agents that wait for the answer, by link."""
