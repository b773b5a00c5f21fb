"""Refusals because of limits: the report of a machine, and the row of the table (:mod:`wanderbus.refusal_table`)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.machine import Output

FREE_FAILURES: Final = "logins.free_failures"


class Limited(Output, frozen=True):
    """A party was limited ``count`` times by ``limit``.

    :param limit: the setting that bounds it, such as ``flood.requests_per_s``
    :param party: the user's URI, or the source: an IPv4 address or a /64 of IPv6
    :param reason: what was refused, dropped or deferred the last time; one line for people
    """

    limit: str
    party: str
    reason: str
    count: int = 1


class LoginRefused(Output, frozen=True):
    """Credentials of ``user``, an address of record, from ``source`` were refused because of ``reason``.

    ``count`` is the number of refusals of this user from there since the last success or pause of an hour. ``limit`` is
    the setting that blocks this attempt or counts the failure. ``by_source`` is true if that limits the source and not
    the user.
    """

    user: str
    reason: str
    source: str
    count: int = 1
    limit: str = FREE_FAILURES
    by_source: str | None = None

    @property
    def party(self) -> str:
        """The limited party: the user, or the source for which all users count together."""
        return self.by_source or self.user


class RefusalRow(msgspec.Struct):
    """One row of the table; times are monotonic seconds."""

    limit: str
    party: str
    reason: str
    count: int
    first_s: float
    last_s: float


class Noted(msgspec.Struct):
    """Count of a tally that is not reported yet, and the last reason."""

    reason: str
    count: int
