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
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.simulation.domains.decentralised_checkers import (
    DeliveryTruth,
    causal_truth,
    check_advertised,
    check_interest_goes_to_advertisers,
    check_routes,
)
from wanderbus.simulation.domains.decentralised_device import DecentralisedDevice, Interest, Offer
from wanderbus.simulation.domains.decentralised_node import DecentralisedNode
from wanderbus.simulation.domains.domain_links import PolledLinks
from wanderbus.simulation.domains.domain_node import DOMAIN
from wanderbus.simulation.domains.engines import Engines
from wanderbus.simulation.domains.multicast_network import GROUP, DrawnRandom, MulticastNetwork
from wanderbus.simulation.scenario import Scenario

ACTIVE_S: Final = 40.0
SETTLE_S: Final = 60.0
EVENTS_MAX: Final = 400
MULTICAST_CHANGES: Final = 40
"""Further changes of interest in worlds with multicast."""
FILTER_LEASE_S: Final = 8.0
"""Lease of the filters of devices that hold back events."""
ORDERED: Final = "O"
"""Subject of an ordered channel, in some worlds."""
SUBJECTS: Final = ("A", "B", "C")
"""Subjects of decentralised channels."""


class DecentralisedScenario(Scenario):
    """A world with a domain of servers, set up by the seed."""

    counted: ClassVar = {
        "servers": "servers",
        "events": "events",
        "replies": "replies",
        "notifications": "notifications",
        "subscriptions": "subscriptions",
        "refused": "refused publishes",
        "advertisements": "advertisements",
        "not_advertised": "publishes without one",
        "crashes": "server crashes",
        "partitions": "partitions",
        "held_back": "events held back by publishers",
        "multicast": "changes of interest by multicast",
        "repaired": "of them repaired by links",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self._truth: DeliveryTruth | None = None
        self.partitions = self.replies = self.held_back = self.advertisements = self._events = self._sequence = 0
        has_multicast = seed % 5 in (2, 3)
        size = draw.choice([2, 3, 3, 4, 5]) + 2 * has_multicast
        names = [f"s{number}" for number in range(1, size + 1)]
        leaders = draw.sample(names, draw.choice([1, 1, 2]))
        key = bytes(32)
        directory = Directory(ChannelGroups(key, 4), first_table(4, leaders, key))
        self.mode: InterestMode = draw.choice(["none", "perfect", "perfect", "imperfect", "adaptive"])
        merging = Merging(self.mode, 0.7)
        self.has_ordered = draw.random() < 0.3
        self.offering = Random(f"advertisements {seed}")
        """Source of what concerns advertisements alone."""
        self.required = "" if seed % 2 else self.offering.choice(["A", "*", "*"])
        """Subject that requires advertisements, * for every subject, none with "", which is in every other world."""
        needy = merging._replace(for_advertisers=True)

        def merging_of(subject: str) -> Merging:
            return needy if (self.required and subject == self.required) or self.required == "*" else merging

        mergings = tuple(dict.fromkeys(map(merging_of, ("*", "A", "B"))))
        self.engines = Engines(self.world, seed, ACTIVE_S)
        self.nodes: dict[str, DecentralisedNode] = {}
        links = PolledLinks(self.world, self.nodes, draw.choice([0.005, 0.05, 0.5]))
        for name in names:
            decentralised = DecentralisedChannels(
                directory, name, names, lambda subject: subject != ORDERED, merging_of, mergings
            )
            channels = OwnChannels(directory, name, merging_of, decentralised)
            config = self.engines.config(BrokerConfig(publisher_filter_lease_s=FILTER_LEASE_S), SUBJECTS)
            node = self.nodes[name] = DecentralisedNode(self.world, name, channels, config, self.next_sequence)
            node.links = links
        self.links = links
        self.multicast = self._add_multicast(names, key) if has_multicast else None
        """Multicast group of the servers, in two of five worlds."""
        is_filtering = seed % 3 == 0
        self.devices = {
            name: DecentralisedDevice(
                node,
                lambda: self.world.now,
                lambda event, name=name: self._on_event(name, event),  # type: ignore[misc]
                self._on_held_back if is_filtering else None,
            )
            for name, node in self.nodes.items()
        }
        self.leaders = leaders
        self._is_active = True

    def _add_multicast(self, names: list[str], key: bytes) -> MulticastNetwork:
        draw = Random(f"multicast {self.seed}")
        network = MulticastNetwork(self.world, self.nodes, self.links.is_reachable, draw)
        random = DrawnRandom(draw)
        for name, node in self.nodes.items():
            node.group = partial(
                MulticastGroup, GROUP, key, domain=DOMAIN, servers=sorted(names), server=name, random=random
            )
            node.send_to_group = partial(network.send, name)
        return network

    def next_sequence(self) -> int:
        """Return the next place in the history of the world."""
        self._sequence += 1
        return self._sequence

    def _check_promises(self) -> None:
        causal = causal_truth(self.nodes)
        self._truth = delivery = DeliveryTruth(self.nodes, self.devices)
        self.problems += [*causal.problems, *delivery.problems]
        self.problems += [f"{dot} was lost for a server" for dot in causal.lost({})]
        for node in self.nodes.values():
            self.problems += [*node.problems, *node.check_rows(), *node.check_nothing_waits()]
        is_exact = self.mode in ("none", "perfect")
        self.problems += check_routes(self.nodes, self.devices, is_exact=is_exact)
        self.problems += check_advertised(self.nodes, self.devices)
        self.problems += check_interest_goes_to_advertisers(self.nodes, self.devices)

    def counts(self) -> dict[str, float]:
        return {
            "servers": len(self.nodes),
            "events": 0 if self._truth is None else len(self._truth.published),
            "notifications": 0 if self._truth is None else len(self._truth.notified),
            "replies": self.replies,
            "refused": sum(device.refused for device in self.devices.values()),
            "subscriptions": sum(len(device.subscriptions) for device in self.devices.values()),
            "crashes": sum(node.crashes for node in self.nodes.values()),
            "partitions": self.partitions,
            "held_back": self.held_back,
            "advertisements": self.advertisements,
            "not_advertised": sum(len(device.refusals) for device in self.devices.values()),
            "multicast": 0 if self.multicast is None else self.multicast.datagrams,
            "repaired": sum(node.repaired_changes() for node in self.nodes.values()),
        }

    def _play(self) -> None:
        world, draw = self.world, self.world.random
        self.engines.plan(self.nodes.values())
        for name, node in self.nodes.items():
            node.start()
            self.devices[name].connect()
        for device in self.devices.values():
            for _ in range(draw.randint(0, 4)):
                world.at(draw.uniform(0.5, ACTIVE_S / 4), lambda device=device: device.subscribe(self._interest()))  # type: ignore[misc]
        self._plan_advertisements()
        for _ in range(draw.choice([10, 40, 100])):
            name = draw.choice(list(self.nodes))
            world.at(draw.uniform(2.0, ACTIVE_S), lambda name=name: self._publish(name))  # type: ignore[misc]
        for _ in range(draw.choice([0, 5, 15]) + MULTICAST_CHANGES * (self.multicast is not None)):
            world.at(draw.uniform(2.0, ACTIVE_S), self._churn)
        troubles = draw.sample(
            [self._crash, self._crash, self._lose_leader, self._partition, self._break], draw.randint(0, 5)
        )
        for _ in range(draw.choice([2, 6, 12]) if troubles else 0):
            world.at(draw.uniform(2.0, ACTIVE_S), draw.choice(troubles))
        world.run(ACTIVE_S)
        self._is_active = False
        self.links.partition({})
        self.links.delay_s_max = 0.02
        self.engines.end_disturbances(self.nodes.values())
        world.run(ACTIVE_S + SETTLE_S)
        for device in self.devices.values():
            device.connect()
        world.run(ACTIVE_S + SETTLE_S + 20.0)

    def _plan_advertisements(self) -> None:
        draw = self.offering
        if not self.required:
            return
        for device in self.devices.values():
            for _ in range(draw.choice([0, 1, 2, 3])):
                self.world.at(draw.uniform(0.5, ACTIVE_S / 4), lambda device=device: self._advertise(device))  # type: ignore[misc]
        for _ in range(draw.choice([0, 10, 30])):
            self.world.at(draw.uniform(2.0, ACTIVE_S), self._change_advertisements)

    # Events of the world ---------------------------------------------------------------------------------------------

    def _interest(self) -> Interest:
        draw = self.world.random
        subjects = [*SUBJECTS, "*", *([ORDERED] if self.has_ordered else [])]
        return Interest(draw.choice(subjects), draw.choice([3, 6, 10]), draw.randint(0, 9))

    def _publish(self, name: str) -> None:
        if self._events < EVENTS_MAX:
            self._events += 1
            draw = self.world.random
            subject = draw.choice([*SUBJECTS, *([ORDERED] if self.has_ordered else [])])
            self.devices[name].publish(Event(subject, {"K": draw.randint(0, 10), "N": self._events}))

    def _on_event(self, name: str, event: Event) -> None:
        if self._is_active and self.world.random.random() < 0.25:
            self.replies += 1
            self._publish(name)

    def _on_held_back(self, event: Event) -> None:
        """Check that nobody wants an event that a device holds back."""
        self.held_back += 1
        for device in self.devices.values():
            for identity, each in device.subscriptions.items():
                if not each.ended and each.interest.matches(event.subject, event["K"]):  # type: ignore[arg-type]
                    self.problems.append(f"{event} was held back, and {identity} of {device.user} wants it")

    def _churn(self) -> None:
        draw = self.world.random
        device = draw.choice(list(self.devices.values()))
        live = [identity for identity, each in device.subscriptions.items() if not each.ended]
        if live and draw.random() < 0.5:
            device.unsubscribe(draw.choice(live))
        else:
            device.subscribe(self._interest())

    def _advertise(self, device: DecentralisedDevice) -> None:
        self.advertisements += 1
        draw = self.offering
        device.advertise(Offer(draw.choice(["A", "A", "B", "C", "*"]), draw.choice([-1, -1, 3, 5, 8])))

    def _change_advertisements(self) -> None:
        device = self.offering.choice(list(self.devices.values()))
        if device.advertised and self.offering.random() < 0.5:
            device.withdraw(self.offering.choice(list(device.advertised)))
        else:
            self._advertise(device)

    def _crash(self, node: DecentralisedNode | None = None, away_s: float | None = None) -> None:
        draw = self.world.random
        node = node or draw.choice(list(self.nodes.values()))
        if not node.alive:
            return
        node.crash(lose_rows=draw.random() < 0.3)
        self.world.after(draw.uniform(0.01, 5.0) if away_s is None else away_s, lambda: self._restart(node))

    def _restart(self, node: DecentralisedNode) -> None:
        node.start()
        self.world.after(self.world.random.uniform(0.0, 0.5), self.devices[node.name].connect)

    def _lose_leader(self) -> None:
        """A leader of channels is gone for a while."""
        self._crash(self.nodes[self.world.random.choice(self.leaders)], self.world.random.uniform(5.0, 20.0))

    def _partition(self) -> None:
        draw = self.world.random
        self.partitions += 1
        self.links.partition({name: draw.randrange(2) for name in self.nodes})
        self.world.after(draw.uniform(0.1, 8.0), lambda: self.links.partition({}))

    def _break(self) -> None:
        self.links.break_some()
