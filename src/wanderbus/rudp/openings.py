"""Opening of direct connections: requests, reports, counters and received openings."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from wanderbus.machine import (
    Address,
)
from wanderbus.transport import ConnectionReport, ConnectionRequest


class Dial(ConnectionRequest, frozen=True):
    """Open a connection to ``remote``, under a ``local_id`` that was allocated."""

    remote: Address


class Opened(ConnectionReport, frozen=True):
    """A connection is open, dialled by this side or by the peer at ``remote``."""

    remote: Address


class OpenFailed(ConnectionReport, frozen=True):
    """A dialled connection could not be opened, and its id is released.

    Either the peer ``refused``, because it already has ``connections_max``, or no party with the secret answered.
    """

    refused: bool


class OpeningCounters(msgspec.Struct):
    """Counters of input that opened no connection; they never decrease."""

    malformed: int = 0
    """Dropped: a HELLO or WELCOME of invalid format."""

    forged: int = 0
    """Dropped: a HELLO, WELCOME or first packet from a party without the secret, or of another mode."""

    stale: int = 0
    """Dropped: an unexpected HELLO or WELCOME, for example a replayed one."""

    refused: int = 0
    """HELLOs refused because of ``connections_max``."""

    expired: int = 0
    """Half-open connections that ended without a packet of the dialler."""


class Opening(NamedTuple):
    """A received HELLO or WELCOME; ``data`` is the whole datagram."""

    destination_id: int
    source_id: int
    kind: int
    public: bytes
    data: bytes
