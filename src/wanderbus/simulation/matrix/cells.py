"""Cells of the mobility matrix: a change, a transport, a path, and what the device does meanwhile (SPEC U-09)."""

from __future__ import annotations

import itertools
from enum import StrEnum
from typing import Final, NamedTuple

from wanderbus.client.machine.messages import DataPathKind


class Change(StrEnum):
    """Change of the device, or of its server."""

    NEW_ADDRESS = "new-address"
    PORT_REBOUND = "port-rebound"
    INTO_NAT = "into-nat"
    OUT_OF_NAT = "out-of-nat"
    BETWEEN_NATS = "between-nats"
    BOTH_ENDS = "both-ends"
    DEVICE_SWITCHED = "device-switched"
    OFF_AND_ON = "off-and-on"
    SERVER_CHANGED = "server-changed"
    SERVER_DRAINED = "server-drained"
    SERVER_KILLED = "server-killed"
    CHANNEL_MOVED = "channel-moved"
    DOMAIN_CHANGED = "domain-changed"
    DOMAIN_AND_BOTH_ENDS = "domain-and-both-ends"
    DOMAIN_AND_PORT = "domain-and-port"
    DOMAIN_AND_NAT = "domain-and-nat"


class DataTransport(StrEnum):
    """Transport of the data channel."""

    UDP = "udp"
    TCP = "tcp"


class Path(StrEnum):
    """Path of the data channel."""

    DIRECT = "direct"
    RELAY = "relay"
    RTPENGINE = "rtpengine"


class Activity(StrEnum):
    """Activity of the device at the moment of the change."""

    IDLE = "idle"
    TRANSACTION = "transaction"
    DRAINING = "draining"
    PUBLISHING = "publishing"


class Cell(NamedTuple):
    """One cell of the matrix."""

    change: Change
    transport: DataTransport
    path: Path
    activity: Activity

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def way(self) -> DataPathKind:
        """Return the only path that the agents may take."""
        if self.path is Path.DIRECT:
            return "udp" if self.transport is DataTransport.UDP else "tcp"
        return "udp-relay" if self.transport is DataTransport.UDP else "tcp-relay"


def obstacle(cell: Cell) -> str:
    """Return the reason for which a cell cannot exist, "" if it can."""
    if cell.path is Path.RTPENGINE and cell.transport is DataTransport.TCP:
        return "rtpengine relays datagrams only"
    return ""


EVERY: Final = tuple(itertools.starmap(Cell, itertools.product(Change, DataTransport, Path, Activity)))
"""All combinations, in the order of the table."""

CELLS: Final = tuple(cell for cell in EVERY if not obstacle(cell))
"""The cells that can exist."""
