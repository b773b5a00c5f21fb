"""Kinds of restriction of an operator, and the argument of their functions (SPEC H-10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from wanderbus.event import Event

Parameters = Mapping[str, Any]
"""Parameters of a subscription for a kind: texts, numbers and booleans by name."""


class Asked(msgspec.Struct, frozen=True):
    """The argument of a kind: one event that a subscription matches, with the times and the owner's status.

    Times are microseconds since the Unix epoch: ``now_us`` by the broker's own clock, which is never set,
    ``received_us`` by the wall clock as it was read, ``last_us`` of the subscription's last notification by the
    broker's own. ``away`` is whether the owner is DISCONNECTED.
    """

    now_us: int
    received_us: int
    last_us: int | None
    away: bool
    event: Event


def _anything(_parameters: Parameters) -> None:
    """Accept any parameters."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of restriction: ``allows`` returns whether a notification may be generated now.

    ``check`` raises :class:`Refused` for invalid parameters when a subscription is submitted.
    """

    allows: Callable[[Parameters, Asked], bool]
    check: Callable[[Parameters], None] = _anything
