"""Outcome of one event for one subscription, with its reason (SPEC U-01)."""

from __future__ import annotations

from typing import Literal

import msgspec

from wanderbus.filters.explaining import Deciding
from wanderbus.subscription import Restriction

Result = Literal[
    "wrong_subject",
    "filtered",
    "took_part",
    "undecided",
    "restricted",
    "expired",
    "not_arrived",
    "not_submitted",
    "ended",
    "bound_elsewhere",
    "not_a_member",
    "queued",
    "dropped",
    "delivered",
]
"""The outcomes; ``bound_elsewhere`` and ``not_a_member`` occur only for a question about one device, ``took_part`` only
for a subscription to a pattern, and ``not_arrived`` only for an event that another server of the domain accepted. An
event is ``undecided`` if a notification was not generated and the filter takes too much work to say why."""


class DeviceReached(msgspec.Struct, frozen=True):
    """A target device of the notification: when it acknowledged, and how long after the event."""

    device: str
    acknowledged_us: int | None
    after_s: float | None


class Explained(msgspec.Struct, frozen=True):
    """The outcome of a pair, its ``reason``, and the time ``at_us`` at which it was decided."""

    event: str
    subscription: str
    outcome: Result
    reason: str
    at_us: int
    published_us: int
    """Time at which the broker accepted the event."""
    user: str
    session: str
    number: int | None = None
    """Number of the notification in the session's stream."""
    predicates: tuple[Deciding, ...] = ()
    restriction: Restriction | None = None
    devices: tuple[DeviceReached, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers of the domain to which the session went, one after the other, while the notification waited."""
