"""Simulation of a domain with decentralised channels: real brokers, crashes, partitions, and leaders that are gone."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import ClassVar, Final

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.simulation.domains.advertising_device import AdvertisingDevice, OfferedFilter
from wanderbus.simulation.domains.decentralised_checkers import (
    causal_truth,
    check_advertised,
    check_interest_goes_to_advertisers,
    check_routes,
)
from wanderbus.simulation.domains.domain_node import DOMAIN, DomainNode
from wanderbus.simulation.domains.domain_scenario import FILTER_LEASE_S, SOON_S, DomainScenario
from wanderbus.simulation.domains.multicast_network import GROUP, DrawnRandom, MulticastNetwork

ACTIVE_S: Final = 40.0
EVENTS_MAX: Final = 400
MULTICAST_CHANGES: Final = 40
"""Further changes of interest in worlds with multicast."""
DELAY_S: Final = 0.001
FILTERING_DELAYS_S: Final = (DELAY_S, 0.7)
"""Delays of messages of devices that hold back events: one is longer than servers take to spread a subscription."""
ORDERED: Final = "O"
"""Subject of an ordered channel, in some worlds."""
SUBJECTS: Final = ("A", "B", "C")
"""Subjects of decentralised channels."""
_KEY: Final = bytes(32)


class DecentralisedScenario(DomainScenario):
    """A world with a domain of servers, set up by the seed; each has one device."""

    active_s = ACTIVE_S
    partition_s_max = 8.0
    counted: ClassVar = DomainScenario.counted | {
        "replies": "replies",
        "advertisements": "advertisements",
        "not_advertised": "publishes without one",
        "multicast": "changes of interest by multicast",
        "repaired": "of them repaired by links",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self.replies = self.advertisements = 0
        self._advertisers: list[AdvertisingDevice] = []
        has_multicast = seed % 5 in (2, 3)
        names = [f"s{number}" for number in range(1, draw.choice([2, 3, 3, 4, 5]) + 2 * has_multicast + 1)]
        self.leaders = draw.sample(names, draw.choice([1, 1, 2]))
        directory = Directory(ChannelGroups(_KEY, 4), first_table(4, self.leaders, _KEY))
        self.mode: InterestMode = draw.choice(["none", "perfect", "perfect", "imperfect", "adaptive"])
        self.subjects = [*SUBJECTS, *([ORDERED] if draw.random() < 0.3 else [])]
        self.required = "" if seed % 2 else draw.choice(["A", "*", "*"])
        """Subject that requires advertisements, * for every subject, none with "", which is in every other world."""
        mergings = tuple(dict.fromkeys(map(self._merging_of, ("*", "A", "B"))))
        self.links.delay_s_max = draw.choice([0.005, 0.05, 0.5])
        for name in names:
            decentralised = DecentralisedChannels(
                directory, name, names, lambda subject: subject != ORDERED, self._merging_of, mergings
            )
            config = self.engines.config(BrokerConfig(publisher_filter_lease_s=FILTER_LEASE_S), SUBJECTS)
            node = DomainNode(self.world, name, OwnChannels(directory, name, self._merging_of, decentralised), config)
            node.may_close = lambda link: False
            self._add_node(node)
            self._add_device(node)
        self.multicast = self._add_multicast(names) if has_multicast else None
        """Multicast group of the servers, in two of five worlds."""

    def _merging_of(self, subject: str) -> Merging:
        return Merging(self.mode, 0.7, for_advertisers=self.required in ("*", subject))

    def _add_device(self, node: DomainNode) -> None:
        is_filtering = self.seed % 3 == 0
        delay_s = self.world.random.choice(FILTERING_DELAYS_S) if is_filtering else DELAY_S
        user = f"sip:user-{node.name}@{DOMAIN}"
        device = AdvertisingDevice(self.world, node, user, "phone", delay_s, is_filtering=is_filtering)
        device.may_be_refused = bool(self.required)
        device.notice_s = device.retry_s = SOON_S
        device.on_event = lambda event: self._reply(device)
        self.devices.append(device)
        self._advertisers.append(device)

    def _add_multicast(self, names: list[str]) -> MulticastNetwork:
        draw = Random(f"multicast {self.seed}")
        network = MulticastNetwork(self.world, self.nodes, self.links.is_reachable, draw)
        random = DrawnRandom(draw)
        for name, node in self.nodes.items():
            node.make_group = partial(
                MulticastGroup, GROUP, _KEY, domain=DOMAIN, servers=sorted(names), server=name, random=random
            )
            node.send_to_group = partial(network.send, name)
        return network

    def counts(self) -> dict[str, float]:
        return super().counts() | {
            "replies": self.replies,
            "advertisements": self.advertisements,
            "not_advertised": sum(len(device.refusals) for device in self._advertisers),
            "multicast": 0 if self.multicast is None else self.multicast.datagrams,
            "repaired": sum(node.repaired_changes() for node in self.nodes.values()),
        }

    def _check_rest(self) -> None:
        causal = causal_truth(self.nodes[name] for name in sorted(self.nodes))
        self.problems += [*causal.problems, *(f"{dot} was lost for a server" for dot in causal.lost({}))]
        super()._check_rest()
        self.problems += check_routes(self.nodes, self._advertisers, is_exact=self.mode in ("none", "perfect"))
        self.problems += check_advertised(self._advertisers)
        self.problems += check_interest_goes_to_advertisers(self._advertisers)

    # Events of the world ---------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        world, draw = self.world, self.world.random
        for device in self._advertisers:
            world.at_random(draw.randint(0, 4), 0.5, ACTIVE_S / 4, partial(self._subscribe, device))
            advertisements = draw.choice([0, 1, 2, 3]) if self.required else 0
            world.at_random(advertisements, 0.5, ACTIVE_S / 4, partial(self._advertise, device))
        if self.required:
            world.at_random(draw.choice([0, 10, 30]), 2.0, ACTIVE_S, self._change_advertisements)
        for _ in range(draw.choice([10, 40, 100])):
            world.at(draw.uniform(2.0, ACTIVE_S), partial(self._publish, draw.choice(self._advertisers)))
        changes = draw.choice([0, 5, 15]) + MULTICAST_CHANGES * (self.multicast is not None)
        world.at_random(changes, 2.0, ACTIVE_S, self._change_interest)
        troubles = draw.sample(
            [self._crash, self._crash, self._lose_leader, self._partition, self._break], draw.randint(0, 5)
        )
        for _ in range(draw.choice([2, 6, 12]) if troubles else 0):
            world.at(draw.uniform(2.0, ACTIVE_S), draw.choice(troubles))

    def _subscribe(self, device: AdvertisingDevice) -> None:
        draw = self.world.random
        expression = f"x < {draw.choice([3, 6, 10])} and x != {draw.randint(0, 9)}"
        device.subscribe(draw.choice([*self.subjects, "*"]), expression)

    def _publish(self, device: AdvertisingDevice) -> None:
        if self.events < EVENTS_MAX:
            device.publish(self._event(self.world.random.choice(self.subjects)))

    def _reply(self, device: AdvertisingDevice) -> None:
        if self.world.now < ACTIVE_S and self.world.random.random() < 0.25:
            self.replies += 1
            self._publish(device)

    def _change_interest(self) -> None:
        draw = self.world.random
        device = draw.choice(self._advertisers)
        live = [identity for identity, each in device.asked.items() if each.state == "live"]
        if live and draw.random() < 0.5:
            device.unsubscribe(draw.choice(live))
        else:
            self._subscribe(device)

    def _advertise(self, device: AdvertisingDevice) -> None:
        self.advertisements += 1
        draw = self.world.random
        above = draw.choice([-1, -1, 3, 5, 8])
        device.advertise(OfferedFilter(draw.choice(["A", "A", "B", "C", "*"]), f"all x > {above}"))

    def _change_advertisements(self) -> None:
        draw = self.world.random
        device = draw.choice(self._advertisers)
        if device.advertised and draw.random() < 0.5:
            device.withdraw(draw.choice(list(device.advertised)))
        else:
            self._advertise(device)

    def _lose_leader(self) -> None:
        """A leader of channels is gone for a while."""
        draw = self.world.random
        self._crash_now(self.nodes[draw.choice(self.leaders)], draw.uniform(5.0, 20.0))
