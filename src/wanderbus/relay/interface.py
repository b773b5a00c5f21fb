"""Inputs and outputs of a relay beside datagrams and timers, and its counters."""

from __future__ import annotations

import msgspec

from wanderbus.machine import Input, Output
from wanderbus.relay.stream import Side


class OpenPort(Output, frozen=True):
    """Request to open ``port`` for ``side``; answered by :class:`PortOpened` or :class:`PortRefused`."""

    side: Side
    port: int


class ClosePort(Output, frozen=True):
    """Request to close ``port`` of ``side`` and every TCP connection it accepted; ignored if the port was refused."""

    side: Side
    port: int


class PortOpened(Input, frozen=True):
    """The ``port`` for ``side`` is open."""

    side: Side
    port: int


class PortRefused(Input, frozen=True):
    """The operating system refused to open ``port`` for ``side``."""

    side: Side
    port: int


class Counters(msgspec.Struct):
    """Counters of a relay since its start; they never decrease."""

    commands: int = 0
    repeated: int = 0
    """Repeated commands that were answered from the reply cache."""
    unreadable: int = 0
    """Datagrams of proxies that are not commands."""
    strangers: int = 0
    """Datagrams from senders other than the proxies."""
    calls: int = 0
    refused: int = 0
    """Offers refused for lack of ports or places."""
    reclaimed: int = 0
    """Calls ended after a timeout without datagrams."""
