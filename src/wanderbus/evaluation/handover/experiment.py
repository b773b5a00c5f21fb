"""Parameters of a run: routing, movement, number of servers and saturation (SPEC R-07, S-07)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

SOURCE: Final = "Event Dissemination Service for Pervasive Computing, section 2.2"

SATURATIONS: Final = (0, 25, 50, 75, 100)
"""Saturation in percent; the paper gives none."""

SERVERS: Final = (1, 2, 5, 10, 20, 50, 100, 200)
SWEEP_SERVERS: Final = 10
"""Servers while the saturation varies."""

SERVERS_MAX: Final = 500
MOVES_MAX: Final = 10_000
USERS_MAX: Final = 1_000
PLANE_M: Final = 10_000.0
"""Side of the square in which servers are and users move."""


class Routing(StrEnum):
    """Way in which events reach the servers that want them, and in which sessions move."""

    RENDEZVOUS = "rendezvous"
    """Ours: leaders of channel groups, chosen by hash; a server sends a leader what nothing else there covers."""

    UNCOVERED = "uncovered"
    """The same, and a server sends the leader every subscription."""

    TREE = "tree"
    """Brokers in a tree, as in Siena and REBECA: covered interest goes hop by hop, and sessions move along the path."""

    FLOODING = "flooding"
    """The same tree without interest: every event goes to every broker."""

    @property
    def has_leaders(self) -> bool:
        """Return whether events pass a leader."""
        return self in (Routing.RENDEZVOUS, Routing.UNCOVERED)


class Movement(StrEnum):
    """Movement of the users; each is served by the nearest server."""

    ONCE = "once"
    """Each user moves from a server with one saturation to a server with the other."""

    WAYPOINT = "waypoint"
    """Random waypoint: straight to a random place, at a random speed, then a pause."""

    GAUSS_MARKOV = "gauss-markov"
    """Gauss-Markov: speed and direction depend on those before."""

    TRACE = "trace"
    """The places of a given trace."""


class TracePoint(msgspec.Struct, frozen=True, array_like=True):
    """Place of a user at a time; ``x_m`` and ``y_m`` are from 0 to :data:`PLANE_M`."""

    at_s: float
    user: int
    x_m: float
    y_m: float


class HandoverJob(msgspec.Struct, frozen=True):
    """One run. Even servers have the saturation ``source_percent``, odd ones ``target_percent``."""

    routing: Routing
    movement: Movement
    servers: int
    source_percent: int
    target_percent: int
    seed: int
    users: int = 8
    subscriptions: int = 4
    """Subscriptions of each user."""
    moves: int = 16
    """Moves of all users together, after which the run ends; with ``once`` each user moves once."""
    events_per_move: int = 10
    """Events that are published around each move."""
    group_moves: int = 0
    """Channel groups that move to another leader meanwhile."""
    trace: tuple[TracePoint, ...] = ()
