"""Subscriptions and their restrictions, as they are submitted, stored and queried (SPEC A-04, H).

Plain data: what an expression means is in :mod:`wanderbus.filters`, what a restriction does in
:mod:`wanderbus.broker.restrictions`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

When = Literal["always", "away"]
"""Whether a restriction holds always, or only while the owner is DISCONNECTED (SPEC H-02)."""


class Frequency(msgspec.Struct, frozen=True, tag="frequency"):
    """At most one notification in ``period_s`` seconds, counted from the last one generated (SPEC H-05, X26)."""

    period_s: float
    when: When = "always"


class Interval(msgspec.Struct, frozen=True, tag="interval"):
    """Notify only from ``start_us`` up to ``end_us``, microseconds since the Unix epoch (SPEC H-07)."""

    start_us: int
    end_us: int
    when: When = "always"


class Daily(msgspec.Struct, frozen=True, tag="daily"):
    """Notify only between two times of day, ``HH:MM`` or ``HH:MM:SS``, in an IANA zone (SPEC H-09, X27).

    ``start`` later than ``end`` wraps over midnight; the end itself is outside.
    """

    start: str
    end: str
    zone: str = "UTC"
    when: When = "always"


Restriction = Frequency | Interval | Daily


class Subscription(msgspec.Struct, frozen=True):
    """What one user wants to hear of (SPEC A-04).

    ``id`` is the origin server's name and the log offset of its submission. ``expires_us`` is absolute
    (SPEC X17), None for never. ``device`` binds it to one device (SPEC E-05). ``queue_max`` tightens the
    session's queue for this subscription alone (SPEC G-18).
    """

    id: str
    owner: str
    session: str
    subject: str
    expression: str
    expires_us: int | None = None
    restrictions: tuple[Restriction, ...] = ()
    device: str | None = None
    queue_max: int | None = None
