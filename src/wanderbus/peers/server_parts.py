"""Parts of an access server that are there only in a domain of several servers."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.peers.decentralised_interest import DecentralisedInterest
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.links import ServerLinks
from wanderbus.server_networks import ServerNetworks


class ServerParts(NamedTuple):
    """The links to the other servers of the domain, and what uses them.

    ``decentralised`` is the interest in decentralised channels, None if there are none. ``others`` are the names of
    the other servers, ``access`` those of all servers that serve devices; ``networks`` says which is near to a device.
    """

    name: str
    links: ServerLinks
    leaders: LeaderSessions
    decentralised: DecentralisedInterest | None = None
    others: tuple[str, ...] = ()
    access: frozenset[str] = frozenset()
    networks: ServerNetworks | None = None
