"""Price of causal order between decentralised domains: the same events with it and without it (SPEC K-06).

Each domain has two servers, with a user of each who reads everything. Some events are answers to what a user has read.
Time is virtual. Links between domains take up to 50 ms, and those within a domain up to 5 ms. Bytes and delays are
exact. The time of an event is that of one processor for all servers, links and users together.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from typing import Any, Final

from harness.reporting import Goal, goal
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import Event
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.federation.wire import EventForwarded, decode
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import decode_event
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.world import World

Row = Mapping[str, Any]

SIZES: Final = (2, 3, 5)
"""Numbers of domains."""
ANSWERS: Final = 0.2
"""Share of the events that are answers."""
SERVERS: Final = 2
RATE_PER_S: Final = 50.0
"""Events of each domain that are no answers."""

_TYPES: Final = frozenset({"Shared"})
_KEY: Final = bytes(32)
_MERGING: Final = Merging("perfect")
_REST_S: Final = 20.0
_NEVER_S: Final = (1e9, 1e9)
_FOREIGN_S_MAX: Final = 0.05
_OWN_S_MAX: Final = 0.005


class CausalDomains:
    """Domains that share one type, whose servers send events directly.

    :param is_causal: true if they ask for causal order with each other
    """

    def __init__(self, domains: int, *, is_causal: bool) -> None:
        self.world = World(5)
        self._is_causal = is_causal
        self._names = [f"d{number}.example" for number in range(domains)]
        self._draw = self.world.random
        self.crossed = self.crossed_bytes = self.past_bytes = 0
        self.within_bytes = 0
        self.published = 0
        self.delays_s: list[float] = []
        """Time from the publish of each event until a user of another domain has it."""
        self.nodes: list[FederatedNode] = []
        foreign: dict[str, FederatedNode] = {}
        links = DomainLinks(self.world, foreign)
        links.on_sent, links.delay_s_max = self._crossed, _FOREIGN_S_MAX
        for number, name in enumerate(self._names):
            within = DomainLinks(self.world, own := dict[str, FederatedNode]())
            within.on_sent, within.delay_s_max = self._within, _OWN_S_MAX
            for server in _servers(number):
                node = self._node(name, number, server)
                node.links, node.foreign_links = within, links
                own[server] = foreign[node.gateway_name] = node
                self.nodes.append(node)
        for node in self.nodes:
            node.start()
        self._rest()
        self._readers = [self._reader(node) for node in self.nodes]
        self._rest()

    def run(self, seconds: float) -> None:
        """Publish at the rate, and let everything arrive."""
        self.crossed = self.crossed_bytes = self.past_bytes = self.within_bytes = 0
        for reader in self._readers:
            reader.on_event = partial(self._arrived, reader)
        count = round(seconds * RATE_PER_S * len(self._names))
        gaps = (self._draw.expovariate(RATE_PER_S * len(self._names)) for _ in range(count))
        for at in accumulate(gaps, initial=self.world.now):
            self.world.at(at, lambda: self._publish(self._draw.choice(self._readers)))
        self._rest(seconds + _REST_S)

    def rows(self, kind: str) -> int:
        """Return a count of all gateways, about all domains."""
        return sum(row.get(kind, 0) for node in self.nodes for row in node.member.rows().values())

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the records of all servers."""
        return sum(len(payload) for node in self.nodes for _, _, payload in node.disk.log)

    def _arrived(self, reader: DomainDevice, event: Event) -> None:
        if event["From"] != reader.node.domain:
            self.delays_s.append(self.world.now - float(str(event["At"])))
        self._answer(reader)

    def _answer(self, reader: DomainDevice) -> None:
        # Each event has as many readers as there are servers.
        if self._draw.random() < ANSWERS / (1 - ANSWERS) / len(self.nodes) * 0.8:
            self.world.after(self._draw.uniform(0.0, 0.05), lambda: self._publish(reader))

    def _publish(self, device: DomainDevice) -> None:
        self.published += 1
        attributes = {"Uid": f"e{self.published}", "At": self.world.now, "From": device.node.domain}
        device.publish(Event("Shared", {**attributes, "Filling": "x" * 100}))

    def _reader(self, node: FederatedNode) -> DomainDevice:
        device = DomainDevice(self.world, node, f"sip:{node.name}@{node.domain}", "phone", 0.001)
        device.subscribe("Shared", "")
        return device

    def _rest(self, seconds: float = _REST_S) -> None:
        self.world.run(self.world.now + seconds)

    def _crossed(self, payload: bytes) -> None:
        message = decode(payload)
        if isinstance(message, EventForwarded):
            self.crossed += 1
            self.past_bytes += len(decode_event(bytes(message.event)).past or b"")
        self.crossed_bytes += len(payload)

    def _within(self, payload: bytes) -> None:
        self.within_bytes += len(payload)

    def _node(self, name: str, number: int, server: str) -> FederatedNode:
        servers = _servers(number)
        directory = Directory(ChannelGroups(_KEY, 8), first_table(8, servers, _KEY))
        own = DecentralisedChannels(
            *(directory, server, servers, lambda subject: True, lambda subject: _MERGING, (_MERGING,)),
            has_ordered=False,
        )
        others = [each for each in servers if each != server]
        channels = OwnChannels(directory, server, lambda subject: _MERGING, own, others, b"1")
        config = BrokerConfig(sweep_s=None, federated=True)
        node = FederatedNode(self.world, server, channels, config, domain=name, save_s=_NEVER_S)
        foreign = [(place, each) for place, each in enumerate(self._names) if each != name]
        node.parameters = FederationParameters(
            own=name,
            server=server,
            servers=servers,
            gateways=servers[:1],
            domains=tuple(
                [
                    ForeignDomain(each, _servers(place)[:1], _TYPES, _TYPES, is_causal=self._is_causal)
                    for place, each in foreign
                ]
            ),
            routing=RoutingSettings(name, {each: Neighbour(_TYPES, _TYPES) for _, each in foreign}, "multicast"),
        )
        return node


def measured(seconds: float) -> list[Row]:
    """Return the price for each number of domains."""
    return [_measured(domains, seconds) for domains in SIZES]


def _measured(domains: int, seconds: float) -> Row:
    found: dict[bool, dict[str, float]] = {}
    row: dict[str, Any] = {"domains": domains}
    for is_causal in (False, True):
        federation = CausalDomains(domains, is_causal=is_causal)
        log_bytes, started_s = federation.log_bytes, time.process_time()
        federation.run(seconds)
        events = federation.published
        found[is_causal] = {
            "us_per_event": (time.process_time() - started_s) / events * 1e6,
            "delay_mean_ms": statistics.mean(federation.delays_s) * 1e3,
            "delay_p99_ms": statistics.quantiles(federation.delays_s, n=100)[-1] * 1e3,
            "bytes_between_per_crossing": federation.crossed_bytes / federation.crossed,
            "bytes_within_per_event": federation.within_bytes / events,
            "log_bytes_per_event": (federation.log_bytes - log_bytes) / events,
        }
        if is_causal:
            row["events"], row["crossed"] = events, federation.crossed
            row["past_bytes"] = round(federation.past_bytes / federation.crossed, 1)
            row["held"] = round(federation.rows("held") / federation.crossed, 4)
            row["unordered"] = federation.rows("unordered")
    for name, without in found[False].items():
        row[name] = {"without": round(without, 1), "with": round(found[True][name], 1)}
    return row


def goals_of(rows: list[Row]) -> list[Goal]:
    """Return the goals: bytes and time that causal order adds in a federation of three domains."""
    three = next(row for row in rows if row["domains"] == 3)
    times = three["us_per_event"]
    return [
        goal("federated_past_bytes_per_event", three["past_bytes"], "bytes"),
        goal("federated_causal_time_ratio", round(times["with"] / times["without"], 3), "ratio"),
        goal("federated_causal_held_share", three["held"], "ratio"),
    ]


def _servers(number: int) -> tuple[str, ...]:
    return tuple([f"s{number}{place}" for place in range(SERVERS)])
