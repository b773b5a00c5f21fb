"""Domains that share events in virtual time, with real brokers and gateways: what crosses is counted exactly.

Each domain has one server. Links keep order and lose nothing; a message is counted with its bytes before encryption.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import Event
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.routing_messages import Method, Neighbour, RoutingSettings
from wanderbus.federation.wire import decode
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.world import World

TYPE: Final = "Shared"
WAIT_S: Final = 20.0
"""Time after which everything is at rest."""

_KEY: Final = bytes(32)
_MERGING: Final = Merging("perfect")
_DEVICE_DELAY_S: Final = 0.001
_NEVER_S: Final = (1e9, 1e9)
"""Pause until a server saves its state, which is no cost of an event."""


class ModelFederation:
    """Domains of one server each, all of which send and receive :data:`TYPE`; one alone has no federation.

    :param domains: number of domains
    """

    def __init__(self, domains: int, method: Method = "multicast") -> None:
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.world = World(1)
        self.names = [f"d{number}.example" for number in range(domains)]
        self.nodes: list[DomainNode] = []
        self._method: Method = method
        by_link: dict[str, FederatedNode] = {}
        foreign_links = DomainLinks(self.world, by_link)
        foreign_links.on_sent = self._count
        for number, name in enumerate(self.names):
            node = self._node(name, f"s{number}", foreign_links)
            self.nodes.append(node)
            if isinstance(node, FederatedNode):
                by_link[node.gateway_name] = node
        for node in self.nodes:
            node.start()
        self.wait()

    def wait(self) -> None:
        """Let time pass until everything is at rest."""
        self.world.run(self.world.now + WAIT_S)

    def device(self, domain: int, user: str) -> DomainDevice:
        """Return a device of a user, connected to the server of a domain."""
        node = self.nodes[domain]
        device = DomainDevice(self.world, node, f"sip:{user}@{node.domain}", "phone", _DEVICE_DELAY_S)
        self.wait()
        return device

    def publish(self, device: DomainDevice, events: int, *, burst: int, values: int = 1, filling: str = "") -> None:
        """Publish events with ``n`` from 0 up to ``values``, ``burst`` at a time."""
        for number in range(events):
            device.publish(
                Event(TYPE, {"n": number % values, "Filling": filling, "Uid": f"{device.user}-{TYPE}-{number}"})
            )
            if number % burst == burst - 1:
                self.wait()
        self.wait()

    def forget_counts(self) -> None:
        """Begin to count again."""
        self.messages.clear()
        self.bytes.clear()

    def _count(self, payload: bytes) -> None:
        kind = type(decode(payload)).__name__
        self.messages[kind] += 1
        self.bytes[kind] += len(payload)

    def _node(self, name: str, server: str, foreign_links: DomainLinks) -> DomainNode:
        directory = Directory(ChannelGroups(_KEY, 8), first_table(8, (server,), _KEY))
        channels = OwnChannels(directory, server, lambda subject: _MERGING, None, [], b"1")
        is_alone = len(self.names) == 1
        config = BrokerConfig(sweep_s=None, federated=not is_alone, user_filter_characters_per_s=1e9)
        if is_alone:
            node = DomainNode(self.world, server, channels, config, domain=name, save_s=_NEVER_S)
        else:
            node = FederatedNode(self.world, server, channels, config, domain=name, save_s=_NEVER_S)
            node.foreign_links, node.parameters = foreign_links, self._parameters(name, server)
        node.links = DomainLinks(self.world, {server: node})
        return node

    def _parameters(self, name: str, server: str) -> FederationParameters:
        others = [(number, each) for number, each in enumerate(self.names) if each != name]
        types = frozenset([TYPE])
        return FederationParameters(
            own=name,
            server=server,
            servers=(server,),
            gateways=(server,),
            domains=tuple([ForeignDomain(each, (f"s{number}",), types, types) for number, each in others]),
            routing=RoutingSettings(name, {each: Neighbour(types, types) for _, each in others}, self._method),
        )
