"""Servers of one event domain in a simulated network, each with a proxy of its own, and agents at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.client.town import Phone, Sent
from wanderbus.parameters.broker import BrokerConfig, Role
from wanderbus.parameters.transports import RudpConfig
from wanderbus.simulation.fleet import ServerFleet, address_of
from wanderbus.simulation.fleet import ip_of as ip_of
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.server import DOMAIN
from wanderbus.simulation.world import World


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
        config = BrokerConfig(roles=self.roles)
        fleet = ServerFleet(self.world, self.network, config, self.rudp, names=self.names, leaders=self.leaders)
        self.servers, self.access = fleet.servers, fleet.access
        for server in self.servers.values():
            server.start()
        self.run(1.0)

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
