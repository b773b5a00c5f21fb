"""Simulated server of a domain that shares events with others; some are gateways, with links to foreign ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from wanderbus import protocol
from wanderbus.access.federation_parts import FIRST_CIRCUIT, FOREIGN_LINKS, FederationParts
from wanderbus.access.federation_traffic import FederationTraffic
from wanderbus.broker.messages import LinkDropped, SendOnLink
from wanderbus.broker.signals import BrokerOutput, ForFederation
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.federation.gateway import ABSENT, REPLACED
from wanderbus.federation.gateway_choice import domain_of_link, link_name
from wanderbus.federation.member import FederationMember
from wanderbus.federation.messages import FederationChanged, ForeignEventsLost
from wanderbus.federation.parameters import FederationParameters
from wanderbus.federation.shared_links import NOT_NEEDED, OTHER_USER
from wanderbus.machine import Input, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.messages import ConnectServer, DisconnectServer
from wanderbus.simulation.domains.domain_node import DOMAIN, SAVE_S, DomainNode, LinkReports
from wanderbus.simulation.domains.links import DomainLink, DomainLinks
from wanderbus.simulation.world import World

_ROUTING_LIVES_MAX: Final = 1_000
"""Lives of the routing of filters in one life of a server."""

_LIVES_PER_CHANGE: Final = 50
"""Lives of it until the file changes again."""


class FederatedNode(DomainNode):
    """A server which has a part in the federation of its domain; names of servers differ in all domains."""

    foreign_links: DomainLinks
    """The links between gateways of different domains, which the scenario sets."""
    parameters: FederationParameters
    """Parameters of its part, which the scenario sets."""
    clock_ahead_s = 0.0
    """Seconds by which the wall clock is ahead, which the scenario sets."""

    def __init__(
        self,
        world: World,
        name: str,
        channels: OwnChannels,
        config: BrokerConfig,
        *,
        domain: str = DOMAIN,
        save_s: tuple[float, float] = SAVE_S,
    ) -> None:
        super().__init__(world, name, channels, config, domain=domain, save_s=save_s)
        self.lost: list[ForeignEventsLost] = []
        """Losses that foreign domains have reported, in all lives."""

    @property
    def wall_us(self) -> int:
        return super().wall_us + round(self.clock_ahead_s * 1e6)

    @property
    def gateway_name(self) -> str:
        """Return the name of this server among the gateways of all domains."""
        return link_name(self.domain, self.name)

    def _add_parts(self) -> None:
        circuits = iter(range(FIRST_CIRCUIT, FIRST_CIRCUIT + 10**9))
        # As with times in ms, no life of the routing of filters has the number of a later life of the server.
        epoch = self.storage.lives * _ROUTING_LIVES_MAX
        self.member = FederationMember(self.parameters, self.channels.lineage, circuits.__next__, epoch=epoch)
        self._changes = 0
        self._foreign_reports = LinkReports()
        links: Any = self._foreign_reports if self.name in self.parameters.gateways else None
        self._federation = FederationTraffic(self._parts, FederationParts(self.member, links), self._traffic)

    def change_federation(self, parameters: FederationParameters) -> None:
        """Use a changed file of the federation while the server runs; one that is down uses it with its start."""
        self.parameters = parameters
        if not self.alive:
            return
        self.foreign_links.unwatch_all(self.gateway_name)
        for number, link in list(self._server_links.items()):
            if self._is_foreign(link):
                del self._server_links[number]
                self.foreign_links.break_link(link, self)
        self._changes += 1
        epoch = self.storage.lives * _ROUTING_LIVES_MAX + _LIVES_PER_CHANGE * self._changes
        links: Any = self._foreign_reports if self.name in parameters.gateways else None
        self._federation.change(FederationChanged(parameters, {}, links, epoch), self._world.now)
        self.member = self._federation.member
        self._run()

    def knows(self, server: str) -> bool:
        return "/" not in server or domain_of_link(server) in {each.name for each in self.parameters.domains}

    def _request_links(self) -> None:
        super()._request_links()
        self._federation.start(self._world.now, self.broker.state, self.domain)
        self._run()

    def _route_broker(self, outputs: list[BrokerOutput], now: float) -> None:
        others: list[BrokerOutput] = []
        for_federation: list[SendOnLink | LinkDropped | ForFederation] = []
        for output in outputs:
            match output:
                case SendOnLink(link=link, payload=payload) if link >= FIRST_CIRCUIT:
                    self._check_durable(protocol.decode_from_broker(payload))
                    for_federation.append(output)
                case LinkDropped(link=link) if link >= FIRST_CIRCUIT:
                    for_federation.append(output)
                case _ if isinstance(output, ForFederation):
                    for_federation.append(output)
                case _:
                    others.append(output)
        super()._route_broker(others, now)
        self._federation.give_broker_outputs(for_federation)

    def _perform(self, output: Input | Output) -> None:
        match output:
            case ConnectServer(server=server) if "/" in server:
                self.foreign_links.watch(self.gateway_name, server)
            case DisconnectServer(server=server):
                self.foreign_links.unwatch(self.gateway_name, server)
            case ForeignEventsLost():
                self.lost.append(output)
            case _:
                super()._perform(output)

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        super().crash(lose_rows=lose_rows)
        self.foreign_links.server_crashed(self)

    def _close_link(self, link: DomainLink, reason: str) -> None:
        """Close a link; one to another domain only because a newer one, or another gateway, takes its place."""
        if not self._is_foreign(link):
            super()._close_link(link, reason)
            return
        closing = f"{self.name} closes a link to {self._name_at(link)}: {reason}"
        self._note(closing)
        if reason not in (REPLACED, OTHER_USER, NOT_NEEDED) and not reason.endswith(ABSENT):
            self.problems.append(closing)
        self.foreign_links.break_link(link, self)

    def _part_of(self, link: DomainLink) -> Any:
        return FOREIGN_LINKS if self._is_foreign(link) else super()._part_of(link)

    def _name_at(self, link: DomainLink) -> str:
        other = link.other(self)
        return link_name(other.domain, other.name) if self._is_foreign(link) else other.name

    def _is_foreign(self, link: DomainLink) -> bool:
        return link.source.domain != link.target.domain

    def check_nothing_waits(self) -> Iterator[str]:
        """Yield what is still on its way though all is quiet."""
        yield from super().check_nothing_waits()
        for domain, row in self.member.rows().items():
            if row["waiting"]:
                yield f"{self.name} has {row['waiting']} events of {domain} that are not durable"
            if row["awaited"]:
                yield f"{self.name} waits for the interest of {row['awaited']}"
        if left := self.unconsumed:
            yield f"{self.name} has consumed {left} messages of foreign links too few"

    @property
    def unconsumed(self) -> int:
        """Return the number of messages of foreign links that have arrived, and are not consumed yet."""
        return sum(abs(self._foreign_reports.unconsumed[link]) for link in self._server_links)
