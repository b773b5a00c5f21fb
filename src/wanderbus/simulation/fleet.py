"""Whole servers of one event domain in a simulated network, each with its own proxy, and links between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from wanderbus.access.access_server import AccessServer
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.machine import Address
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.server_traffic import FIRST_LINK
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.simulation.network import Network
from wanderbus.simulation.server import DOMAIN, LINKS_PORT, SimulatedMember, SimulatedServer
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.message.targets import PORTS, Transport

_LAYOUT: Final = b"the only file"


class ServerFleet:
    """Servers ``s1``, ``s2`` and so on of one domain, all in the ordered model; ``leaders`` share the channels.

    ``options`` are those of :class:`SimulatedServer`.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        config: BrokerConfig,
        rudp: RudpConfig,
        *,
        names: Sequence[str],
        leaders: Sequence[str],
        **options: Any,
    ) -> None:
        self.names = tuple(names)
        self._world = world
        random = SeededRandom(world)
        self._keys = {name: KeyPair(random.token(KEY_BYTES)) for name in self.names}
        self._next_link = itertools.count(FIRST_LINK).__next__
        key = bytes(16)
        directory = Directory(ChannelGroups(key, 4), first_table(4, leaders, key))
        others = {name: [each for each in self.names if each != name] for name in self.names}
        self.channels = {name: OwnChannels(directory, name, others=others[name], layout=_LAYOUT) for name in self.names}
        self.servers = {
            name: SimulatedServer(
                world,
                network,
                msgspec.structs.replace(config, server=name, domain=DOMAIN),
                rudp,
                ip=ip_of(name),
                member=SimulatedMember(self.channels[name], lambda state, name=name: self._parts(name, state)),  # type: ignore[misc]
                **options,
            )
            for name in self.names
        }

    def access(self, name: str) -> AccessServer:
        """Return the live access server of this name."""
        access = self.servers[name].access
        assert access is not None
        return access

    def _parts(self, name: str, state: BrokerState) -> ServerParts:
        others = {
            other: ((ip_of(other), LINKS_PORT), self._keys[other].public) for other in self.names if other != name
        }
        random = SeededRandom(self._world)
        links = ServerLinks(
            name, self._keys[name], others, DOMAIN, random, new_link=self._next_link, reset_key=random.token(32)
        )
        leaders = LeaderSessions(
            self.channels[name], epoch=max(1, state.wall_us), positions=dict(state.leaders.items())
        )
        return ServerParts(name, links, leaders, None, tuple(others), frozenset({name, *others}))


def ip_of(name: str) -> str:
    """Return the IP address of a server."""
    return f"10.0.0.{name[1:]}"


def address_of(name: str, transport: Transport = "UDP") -> Address:
    """Return the address of a server's proxy."""
    return ip_of(name), PORTS[transport]
