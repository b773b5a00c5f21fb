"""Waiting notification as a queue policy sees it (SPEC G-23)."""

from __future__ import annotations

from functools import cached_property

from wanderbus.event import Event
from wanderbus.protocol import decode_event


class Waiting:
    """A waiting notification: its number, the time at which the broker accepted its event, and its size in bytes.

    ``at_us`` is microseconds since the Unix epoch by the broker's clock.
    """

    def __init__(self, number: int, at_us: int, data: bytes) -> None:
        self.number = number
        self.at_us = at_us
        self.size = len(data)
        self._data = data

    @cached_property
    def event(self) -> Event:
        """The event, decoded at the first access."""
        return decode_event(self._data)
