"""Bounds on SIP requests and logins of one source or user (SPEC C-20)."""

from __future__ import annotations

import msgspec


class LoginLimits(msgspec.Struct, frozen=True):
    """Limits on wrong credentials."""

    free_failures: int = 5
    """Failures of one user from one source before the first pause. All IPv6 addresses of one /64 are one source."""

    pause_s: float = 1.0
    """The first pause; each further failure doubles it. Earlier attempts are refused unread, with Retry-After."""

    pause_s_max: float = 60.0
    """The longest pause."""

    user_failures: float = 30.0
    """Failures of one user from all sources together, except those from which the user has logged in recently."""

    user_recovery_s: float = 30.0
    """Time until one more of these failures is allowed."""

    source_failures: float = 60.0
    """Failures of all users from one source together, except users who have logged in from there recently."""

    source_recovery_s: float = 1.0
    """Time until one more of these failures is allowed."""

    lately_s_max: float = 86_400.0
    """Time for which a source counts as one from which the user has logged in."""

    forget_s: float = 3_600.0
    """Failures of a user from a source are forgotten after this time without another."""

    entries_max: int = 8_192
    """Largest number of users, of sources, and of pairs of them, with a count each."""


class FloodLimits(msgspec.Struct, frozen=True):
    """Limits for one source IP address."""

    requests_per_s: float = 500.0
    """Sustained rate of requests."""

    burst_requests: float = 2_000.0
    """Requests allowed at once on top of it: many users may share one address, and they all return in the same second
    when a network recovers.
    """

    stranger_requests_per_s: float = 100.0
    """Sustained rate for a source from which no user has logged in within a day."""

    stranger_burst_requests: float = 400.0
    """Requests allowed at once from such a source."""

    strangers_requests_per_s: float = 400.0
    """Sustained rate of all such sources together."""

    strangers_burst_requests: float = 800.0
    """Requests allowed at once from all such sources together."""

    refusals_per_s: float = 1.0
    """Limit of 503 responses to each source."""

    sources_max: int = 10_000
    """Largest number of sources with a bucket each."""
