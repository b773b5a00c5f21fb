"""Small worlds of domains that share events: real brokers and gateways, and links that keep order (decision 0161)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import Event
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.routing_messages import Method, Neighbour, RoutingSettings
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.world import World

KEY = bytes(32)
TYPES = frozenset({"T", "U", "X"})
"""Types; of two domains "alpha" and "beta", the first is the rendezvous of "X", and the second that of the others."""


class Domains:
    """Domains by name, each with its servers; the names of all servers differ.

    :param gateways: the gateways of a domain; its first server unless given
    :param shared: types that go from one domain to another, by both; all of :data:`TYPES` unless given
    :param decentralised: the domains whose channels are decentralised
    :param apart: pairs of domains that have no link
    :param distances: lengths of links; 1 unless given
    :param on_sent: called with each message from domain to domain
    """

    def __init__(
        self,
        domains: Mapping[str, Sequence[str]],
        *,
        gateways: Mapping[str, Sequence[str]] | None = None,
        shared: Mapping[tuple[str, str], frozenset[str]] | None = None,
        decentralised: Sequence[str] = (),
        parents: Mapping[str, str] | None = None,
        method: Method = "multicast",
        merging: InterestMode = "perfect",
        config: BrokerConfig | None = None,
        apart: Collection[frozenset[str]] = (),
        distances: Mapping[frozenset[str], float] | None = None,
        on_sent: Callable[[bytes], None] = lambda payload: None,
    ) -> None:
        self.world = World(1)
        self.nodes: dict[str, FederatedNode] = {}
        self.domains = domains
        self._gateways = {name: tuple((gateways or {}).get(name, servers[:1])) for name, servers in domains.items()}
        self.shared = shared
        self.method: Method = method
        self.causal: set[tuple[str, str]] = set()
        """Domains that ask for causal order, each with the one that it asks for it with."""
        self.absent: set[str] = set()
        """Domains that are not in the files of the others."""
        self._apart = apart
        self._distances = distances or {}
        self._merging = Merging(merging, 0.7)
        foreign: dict[str, FederatedNode] = {}
        self.foreign_links = DomainLinks(self.world, foreign)
        self.foreign_links.on_sent = on_sent
        self.links: dict[str, DomainLinks] = {}
        for domain, servers in domains.items():
            own: dict[str, FederatedNode] = {}
            self.links[domain] = DomainLinks(self.world, own)
            for name in servers:
                is_decentralised = domain in decentralised
                channels = _channels(name, servers, parents or {}, self._merging, is_decentralised=is_decentralised)
                node = FederatedNode(
                    self.world, name, channels, config or BrokerConfig(sweep_s=None, federated=True), domain=domain
                )
                node.links, node.foreign_links = self.links[domain], self.foreign_links
                node.parameters = self.parameters(domain, name)
                own[name] = self.nodes[name] = foreign[node.gateway_name] = node
        for each in self.nodes.values():
            each.start()
        self.wait()

    def types(self, source: str, target: str) -> frozenset[str]:
        """Return the types that go from one domain to another."""
        return TYPES if self.shared is None else self.shared.get((source, target), frozenset())

    def wait(self, seconds: float = 20.0) -> None:
        """Let time pass."""
        self.world.run(self.world.now + seconds)

    def device(self, server: str, user: str) -> DomainDevice:
        """Return a device of a user, connected to a server."""
        node = self.nodes[server]
        device = DomainDevice(self.world, node, f"sip:{user}@{node.domain}", "phone", 0.001)
        self.wait(1.0)
        return device

    def subscriber(self, server: str, user: str, subject: str = "T", expression: str = "") -> DomainDevice:
        """Return a device with a subscription that all domains know."""
        device = self.device(server, user)
        device.subscribe(subject, expression)
        self.wait()
        assert device.asked
        return device

    def publish(self, device: DomainDevice, *numbers: int, subject: str = "T") -> None:
        """Publish events with these values of ``x``, and let them arrive."""
        for number in numbers:
            self.publish_soon(device, number, subject)
        self.wait()

    def publish_soon(self, device: DomainDevice, number: int, subject: str = "T") -> None:
        """Publish an event with this value of ``x``."""
        device.publish(Event(subject, {"x": number, "Uid": f"{device.user}-{subject}-{number}"}))

    def problems(self) -> list[str]:
        """Return what is wrong though all is quiet."""
        return [one for node in self.nodes.values() for one in (*node.problems, *node.check_nothing_waits())]

    def parameters(self, domain: str, server: str) -> FederationParameters:
        """Return what a server knows of the federation by the present files."""
        others = [each for each in self.domains if each != domain and each not in self.absent]
        neighbours = {
            each: Neighbour(
                self.types(each, domain),
                self.types(domain, each),
                self._distances.get(frozenset((domain, each)), 1.0),
            )
            for each in others
        }
        return FederationParameters(
            own=domain,
            server=server,
            servers=tuple(self.domains[domain]),
            gateways=self._gateways[domain],
            domains=tuple(
                [
                    ForeignDomain(
                        each,
                        self._gateways_from(domain, each),
                        neighbours[each].receives,
                        neighbours[each].sends,
                        is_causal=(domain, each) in self.causal,
                    )
                    for each in others
                ]
            ),
            routing=RoutingSettings(domain, neighbours, self.method),
        )

    def _gateways_from(self, domain: str, other: str) -> tuple[str, ...]:
        return () if frozenset((domain, other)) in self._apart else self._gateways[other]


def received(device: DomainDevice) -> list[int]:
    """Return the values of ``x`` that a device has received, in order; -1 for a gap."""
    return [
        int(item.text.rpartition("-")[2]) if item.id is not None else -1
        for items in device.items.values()
        for item in items
    ]


def _channels(
    name: str, servers: Sequence[str], parents: Mapping[str, str], merging: Merging, *, is_decentralised: bool
) -> OwnChannels:
    directory = Directory(ChannelGroups(KEY, 8, parents=parents), first_table(8, tuple(servers), KEY))
    decentralised = None
    if is_decentralised:
        decentralised = DecentralisedChannels(
            *(directory, name, tuple(servers), lambda subject: True, lambda subject: merging, (merging,)),
            has_ordered=False,
        )
    others = [each for each in servers if each != name]
    return OwnChannels(directory, name, lambda subject: merging, decentralised, others, b"1")
