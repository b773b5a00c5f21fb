"""Whole servers in a simulated network, each alone in its domain, and links between them over which sessions move."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from wanderbus.access.access_server import AccessServer
from wanderbus.access.federation_parts import FIRST_CIRCUIT, FOREIGN_SOCKET, FederationParts
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.federation.gateway_choice import FOREIGN_RETRY_S_MAX, link_name
from wanderbus.federation.member import FederationMember
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.machine import Address
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.peers.far_servers import FarDomains
from wanderbus.peers.links import ServerLinks
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.simulation.fleet import address_of, ip_of
from wanderbus.simulation.network import Network
from wanderbus.simulation.server import GATEWAY_PORT, SimulatedFederation, SimulatedServer
from wanderbus.simulation.world import SeededRandom, World

_LINEAGE: Final = Hierarchy({}).lineage


class LoneServers:
    """A server for each of the ``domains``, which are named by server; all events of the ``types`` cross.

    ``relays`` are those of each server; ``options`` are those of :class:`SimulatedServer`.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        config: BrokerConfig,
        rudp: RudpConfig,
        *,
        domains: Mapping[str, str],
        types: frozenset[str],
        relays: Mapping[str, Sequence[Address]] = {},
        **options: Any,
    ) -> None:
        self.domains = domains
        self._world = world
        self._types = types
        random = SeededRandom(world)
        self._keys = {name: KeyPair(random.token(KEY_BYTES)) for name in domains}
        self._circuits = itertools.count(FIRST_CIRCUIT)
        self._links = itertools.count(1)
        self.servers = {
            name: SimulatedServer(
                *(world, network, msgspec.structs.replace(config, server=name, domain=domain, federated=True), rudp),
                ip=ip_of(name),
                domain=domain,
                relays=relays.get(name, ()),
                federation=SimulatedFederation(
                    {domains[other]: address_of(other, "TLS") for other in self._others(name)},
                    lambda state, name=name: self._parts(name, state),  # type: ignore[misc]
                ),
                **options,
            )
            for name, domain in domains.items()
        }

    def access(self, name: str) -> AccessServer:
        """Return the live access server of this name."""
        access = self.servers[name].access
        assert access is not None
        return access

    def filters(self, name: str, other: str) -> int | None:
        """Return how many filters the domain of ``other`` has at the server ``name``; None if that is in doubt."""
        rows = {row["domain"]: row for row in self.access(name).federation_rows()}
        row = rows[self.domains[other]]
        return row["filters"] if row["is_linked"] and row["is_settled"] else None

    def _others(self, name: str) -> list[str]:
        return [each for each in self.domains if each != name]

    def _parts(self, name: str, state: BrokerState) -> FederationParts:
        """Return the part of a server in the federation; each is the gateway of its domain."""
        own, others, random = self.domains[name], self._others(name), SeededRandom(self._world)
        parameters = self._parameters(name)
        epoch_ms = max(self._world.wall_us, state.wall_us) // 1_000
        member = FederationMember(parameters, _LINEAGE, self._circuits.__next__, epoch=epoch_ms)
        links = ServerLinks(
            link_name(own, name),
            self._keys[name],
            {
                link_name(self.domains[each], each): ((ip_of(each), GATEWAY_PORT), self._keys[each].public)
                for each in others
            },
            "gateways of all domains",
            random,
            new_link=self._links.__next__,
            socket=FOREIGN_SOCKET,
            reset_key=random.token(32),
            retry_s_max=FOREIGN_RETRY_S_MAX,
        )
        return FederationParts(member, links, FarDomains(own, parameters.far_domains, name, _LINEAGE))

    def _parameters(self, name: str) -> FederationParameters:
        own, types = self.domains[name], self._types
        others = {self.domains[each]: each for each in self._others(name)}
        return FederationParameters(
            own=own,
            server=name,
            servers=(name,),
            gateways=(name,),
            domains=tuple(
                [
                    ForeignDomain(domain, (each,), types, types, gives_sessions=True, takes_sessions=True)
                    for domain, each in others.items()
                ]
            ),
            routing=RoutingSettings(own, {domain: Neighbour(types, types) for domain in others}),
        )
