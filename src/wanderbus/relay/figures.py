"""Counters of one side of a stream."""

from __future__ import annotations

import msgspec


class Figures(msgspec.Struct):
    """Counters of datagrams from one side. Each datagram counts as forwarded or in one of the dropped counters."""

    datagrams: int = 0
    """Forwarded datagrams; over TCP, pieces."""
    bytes: int = 0
    """Forwarded bytes."""
    unknown_source: int = 0
    """Dropped: from another address, without a valid connection id."""
    nowhere: int = 0
    """Dropped: the address of the other party is not known yet."""
    over_rate: int = 0
    """Dropped: above the maximum rate of a stream."""
    unsent: int = 0
    """Dropped: the operating system refused to send it."""
    learnt: int = 0
    """Number of times that the party was found at another address."""
    connections: int = 0
    """TCP connections of the party that were joined to the other party."""
    refused: int = 0
    """TCP connections that were closed instead."""
