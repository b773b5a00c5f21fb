"""Servers of one event domain in a simulated network, each with a proxy of its own, and agents at them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tests.client.town import Phone, Sent
from wanderbus.access.access_server import AccessServer
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.machine import Address
from wanderbus.parameters.broker import BrokerConfig, Role
from wanderbus.parameters.transports import RudpConfig
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.server_traffic import FIRST_LINK
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.server import DOMAIN, LINKS_PORT, SimulatedMember, SimulatedServer
from wanderbus.simulation.world import SeededRandom, World


class Fleet:
    """A running world of these servers; it has what a :class:`Phone` needs of a town."""

    def __init__(
        self,
        conditions: PathConditions | None = None,
        *,
        seed: int = 1,
        names: Sequence[str] = ("s1", "s2"),
        leaders: Sequence[str] = ("s1", "s2"),
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        self.names = tuple(names)
        self.leaders = tuple(leaders)
        self.roles = dict(roles or {})
        self.world = World(seed)
        self.network = Network(self.world, conditions or PathConditions(delay_min_s=0.005, delay_max_s=0.005))
        self.rudp = RudpConfig()
        self.phones: list[Phone] = []
        self.sent: list[Sent] = []
        self.network.tap = lambda source, destination, data: self.sent.append(
            Sent(self.world.now, source, destination, data)
        )
        random = SeededRandom(self.world)
        self._keys = {name: KeyPair(random.token(KEY_BYTES)) for name in self.names}
        self._next_link = itertools.count(FIRST_LINK).__next__
        self.servers = {name: self._make(name) for name in self.names}
        for server in self.servers.values():
            server.start()
        self.run(1.0)

    def _make(self, name: str) -> SimulatedServer:
        key = bytes(16)
        directory = Directory(ChannelGroups(key, 4), first_table(4, self.leaders, key))
        member = SimulatedMember(OwnChannels(directory, name), lambda state: self._parts(name, state))
        config = BrokerConfig(server=name, domain=DOMAIN, roles=self.roles)
        return SimulatedServer(self.world, self.network, config, self.rudp, ip=ip_of(name), member=member)

    def _parts(self, name: str, state: BrokerState) -> ServerParts:
        others = {
            other: ((ip_of(other), LINKS_PORT), self._keys[other].public) for other in self.names if other != name
        }
        random = SeededRandom(self.world)
        links = ServerLinks(
            name, self._keys[name], others, DOMAIN, random, new_link=self._next_link, reset_key=random.token(32)
        )
        member = self.servers[name]._member
        assert member is not None
        leaders = LeaderSessions(member.channels, epoch=max(1, state.wall_us), positions=dict(state.leaders.items()))
        return ServerParts(name, links, leaders, None, tuple(others), frozenset({name, *others}))

    def access(self, name: str) -> AccessServer:
        """The live access server of this name."""
        access = self.servers[name].access
        assert access is not None
        return access

    def phone(self, server: str, name: str = "alice", **options: Any) -> Phone:
        """An agent that calls at the proxy of this server."""
        return Phone(self, name, server=address_of(server), **options)  # type: ignore[arg-type]

    def run(self, seconds: float) -> None:
        """Advance the clock."""
        end = self.world.now + seconds
        self.world.at(end, lambda: None)
        self.world.run(end)

    def users_at(self, name: str) -> list[str]:
        """The users with SIP sessions at this server."""
        return [session.remote_uri for session in self.access(name)._user_agent.sessions.values()]

    def subscribers_at(self, name: str) -> set[str]:
        """The users with subscriptions at this server."""
        return {row.user for row in self.servers[name].state.sessions.values() if row.subscriptions} - {
            f"sip:{each}@servers.{DOMAIN}" for each in self.names
        }


def ip_of(name: str) -> str:
    return f"10.0.0.{name[1:]}"


def address_of(name: str) -> Address:
    return ip_of(name), 5060
