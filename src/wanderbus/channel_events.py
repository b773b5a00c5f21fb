"""Events of an ordered channel by number, as :meth:`wanderbus.Agent.history` yields them (SPEC K-03)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wanderbus.event import Event, EventId, Position

Place: TypeAlias = int | Position | None
"""A number of a channel, of its present leader or, as a position, under an epoch."""


class ChannelEvent(msgspec.Struct, frozen=True):
    """An event of a channel. Its ``number`` is its position in the log of the server that leads the channel.

    ``epoch`` is that of the leader, 0 for a server without a domain. The server accepted it from ``user`` at ``at_us``,
    in microseconds since the Unix epoch; ``event`` takes ``size_bytes`` in the log.
    """

    number: int
    epoch: int
    id: EventId
    user: str
    at_us: int
    event: Event
    size_bytes: int


class NumbersGone(msgspec.Struct, frozen=True):
    """A marker where events are missing: numbers below ``kept_from`` are no longer kept.

    With ``led_before`` that server led the channel before: its log has the earlier events, under its own numbers. With
    a reason they are ``left_out`` because of it.
    """

    kept_from: int
    led_before: str = ""
    left_out: str = ""
