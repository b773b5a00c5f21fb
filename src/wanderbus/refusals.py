"""Refusals because of limits: the report of a machine, and the row of the table (:mod:`wanderbus.refusal_table`)."""

from __future__ import annotations

import msgspec

from wanderbus.machine import Output


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
