"""What a relay asks of its host and is told by it, beside datagrams and timers, and what it counts."""

from __future__ import annotations

import msgspec

from wanderbus.machine import Input, Output
from wanderbus.relay.stream import Side


class OpenPort(Output, frozen=True):
    """Open ``port`` for ``side``, and say so by :class:`PortOpened` or :class:`PortRefused`."""

    side: Side
    port: int


class ClosePort(Output, frozen=True):
    """Close ``port``, which was for ``side``, and every TCP connection that came by it; no harm if it was refused."""

    side: Side
    port: int


class PortOpened(Input, frozen=True):
    """The ``port`` for ``side`` is open."""

    side: Side
    port: int


class PortRefused(Input, frozen=True):
    """The operating system would not open the ``port`` for ``side``."""

    side: Side
    port: int


class Counters(msgspec.Struct):
    """What a relay has done; all rise only."""

    commands: int = 0
    repeated: int = 0
    """Commands that were answered again."""
    unreadable: int = 0
    """Datagrams of proxies that are no commands."""
    strangers: int = 0
    """Datagrams from elsewhere than the proxies."""
    calls: int = 0
    refused: int = 0
    """Offers for which there was no room."""
    reclaimed: int = 0
    """Calls on which nothing came for too long."""
