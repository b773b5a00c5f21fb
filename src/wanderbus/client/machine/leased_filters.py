"""Filters of a subject that a publishing agent may use under a lease (SPEC N-02)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from wanderbus.filters import Filter


class LeasedFilters(msgspec.Struct):
    """Filters of a subject, None while they are unknown, and the times of the lease."""

    number: int
    """Number of the last request."""
    asked_at: float
    is_asked: bool = True
    """True while that request has no answer."""
    filters: tuple[Filter, ...] | None = None
    until: float = 0.0
    renew_at: float = 0.0
