"""Events of an ordered channel by number, as :meth:`wanderbus.Agent.history` yields them (SPEC K-03)."""

from __future__ import annotations

import msgspec

from wanderbus.event import Event, EventId


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
    """A marker before the first event: numbers below ``kept_from`` are no longer kept, so their events are missing.

    With ``led_before`` that server led the channel before: its log has the earlier events, under its own numbers.
    """

    kept_from: int
    led_before: str = ""
