"""Simulated domains that share events (SPEC M).

Servers crash at every step, gateways more often than others. Links within domains and between them are slow and break,
and domains are divided for up to a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import ClassVar, Final

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.interest.interest_set import MODES
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.federation.gateway_choice import link_name
from wanderbus.federation.routing_messages import Method
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_scenario import FILTER_LEASE_S, DomainScenario
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.federation.interest import CountedInterest, check_interest, expression_of, mark_of
from wanderbus.simulation.federation.layout import TYPES, FederationLayout, SimulatedDomain
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.federation.truth import FederationTruth

ACTIVE_S: Final = 70.0
LOOK_S: Final = 0.5
"""Pause until it is looked again which subscriptions count."""
CLOCKS_APART_S: Final = 60.0
"""Time by which the clocks of two servers differ at most, in every seventh world."""
DIVIDED_S_MAX: Final = 60.0
"""Longest time for which domains are divided."""
_KEY: Final = bytes(32)


class FederationScenario(DomainScenario):
    """A world with several domains, set up by the seed."""

    active_s = ACTIVE_S
    method: ClassVar[Method] = "multicast"
    """Method by which filters go from domain to domain."""
    counted: ClassVar = {
        "domains": "domains",
        "servers": "servers",
        "events": "events",
        "imported": "events that came to another domain",
        "notifications": "notifications there",
        "subscriptions": "subscriptions",
        "counting": "subscriptions that counted in another domain",
        "late": "events sent after the end of what wanted them",
        "takeovers": "other gateways",
        "held_back": "events held back by publishers",
        "crashes": "server crashes",
        "breaks": "broken links",
        "partitions": "partitions",
        "full_disks": "full disks",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self.layout = self._make_layout(seed, draw)
        self.hosts: dict[str, FederatedNode] = {}
        """Servers of all domains."""
        by_link: dict[str, FederatedNode] = {}
        self.foreign_links = DomainLinks(self.world, by_link)
        self._federation_truth: FederationTruth | None = None
        self._last_mark = 0
        window, self.links.delay_s_max = draw.choice([(1, 0.005), (3, 0.05), (256, 0.05), (256, 0.5)])
        self._foreign_delay_s = self.foreign_links.delay_s_max = draw.choice([0.02, 0.1, 1.0])
        config = BrokerConfig(
            sweep_s=None, unacknowledged_max=window, publisher_filter_lease_s=FILTER_LEASE_S, federated=True
        )
        for domain in self.layout.domains.values():
            for name in domain.servers:
                node = self._make_node(domain, name, self.engines.config(config, TYPES))
                self._add_node(node)
                self.hosts[name] = by_link[link_name(domain.name, name)] = node
            for number in range(draw.choice([1, 1, 2, 3])):
                self._add_user(domain, f"sip:u{number}@{domain.name}")
        self.interest = CountedInterest(self.world, self.layout, self.hosts, self.devices)

    def _make_layout(self, seed: int, draw: Random) -> FederationLayout:
        return FederationLayout(seed, draw, self.method)

    def _node_type(self) -> type[FederatedNode]:
        return FederatedNode

    def _make_node(self, domain: SimulatedDomain, name: str, config: BrokerConfig) -> FederatedNode:
        draw, names = self.world.random, domain.servers
        merging = Merging(draw.choice(MODES), 0.7)
        directory = Directory(domain.groups, first_table(domain.groups.count, names, _KEY))
        own = None
        if domain.decentralised:
            own = DecentralisedChannels(
                directory,
                name,
                names,
                domain.decentralised.__contains__,
                lambda subject: merging,
                (merging,),
                has_ordered=len(domain.decentralised) < len(TYPES),
            )
        others = [each for each in names if each != name]
        channels = OwnChannels(directory, name, lambda subject: merging, own, others, b"1")
        node = self._node_type()(self.world, name, channels, config, domain=domain.name)
        node.may_close = lambda link: True
        node.foreign_links = self.foreign_links
        node.parameters = self.layout.parameters(domain, name)
        node.clock_ahead_s = draw.uniform(0.0, CLOCKS_APART_S) if self.seed % 7 == 3 else 0.0
        return node

    def _add_user(self, domain: SimulatedDomain, user: str) -> None:
        draw = self.world.random
        node = self.hosts[draw.choice(domain.servers)]
        for place in range(draw.choice([1, 1, 2])):
            delay_s = draw.choice([0.001, 0.02, 0.2])
            device = DomainDevice(
                self.world, node, user, f"d{place} of {user}", delay_s, is_filtering=self.seed % 3 == 0
            )
            self.devices.append(device)

    def counts(self) -> dict[str, float]:
        truth = self._federation_truth
        return {
            **super().counts(),
            **({} if truth is None else truth.counters),
            "domains": len(self.layout.domains),
            "events": 0 if truth is None else len(truth.origins),
            "imported": 0 if truth is None else truth.counters["imported"],
            "notifications": 0 if truth is None else truth.counters["notifications"],
            "subscriptions": 0 if truth is None else len(truth.subscriptions),
            "counting": len([each for each in self.interest.counted.values() if each]),
            "late": 0 if truth is None else truth.counters["late"],
            "takeovers": self.interest.takeovers,
        }

    # Events of the world --------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        world, draw = self.world, self.world.random
        for number in range(round(ACTIVE_S / LOOK_S)):
            world.at(number * LOOK_S, self.interest.look)
        for device in self.devices:
            world.at_random(draw.choice([0, 1, 2, 4]), 0.1, 5.0, partial(self._subscribe, device))
        world.at_random(draw.choice([30, 80, 200]), 2.0, ACTIVE_S, self._publish)
        world.at_random(draw.choice([0, 5, 20]), 5.0, ACTIVE_S, self._change_subscriptions)
        troubles: list[Callable[[], None]] = [
            self._crash,
            self._crash_gateway,
            self._crash_gateway,
            self._break,
            self._break_foreign,
            self._partition,
            self._divide,
            self._isolate,
            self._fill,
            self._lose,
            self._move,
            self._crash_device,
        ]
        chosen = draw.sample(troubles, draw.randint(0, len(troubles)))
        for _ in range(draw.choice([3, 8, 20]) if chosen else 0):
            world.at(draw.uniform(3.0, ACTIVE_S), draw.choice(chosen))

    def _subscribe(self, device: DomainDevice) -> None:
        draw = self.world.random
        low = draw.randrange(10)
        self._last_mark += 1
        wanted = draw.choice([f"x >= {low}", f"x < {low}", f"x == {low}", f"x >= {low} and x < {low + 3}", "x >= 0"])
        if draw.random() < 0.3:
            wanted = f"{wanted} and y == {draw.randrange(3)}"
        device.subscribe(draw.choice([*TYPES, "*"]), expression_of(wanted, self._last_mark))

    def _change_subscriptions(self) -> None:
        """Let a device subscribe, unsubscribe or renew."""
        draw, device = self.world.random, self._device()
        by_state: dict[str, list[str]] = {}
        for identity, asked in device.asked.items():
            by_state.setdefault(asked.state, []).append(identity)
        match draw.choice(["subscribe", "live", "live", "ended"]):
            case "live" if live := by_state.get("live"):
                device.unsubscribe(draw.choice(live))
            case "ended" if ended := by_state.get("ended"):
                device.renew(draw.choice(ended))
            case _:
                self._subscribe(device)

    def _publish(self) -> None:
        draw, device = self.world.random, self._device()
        outbox = draw.random() < 0.5
        for _ in range(draw.choice([1, 1, 5])):
            device.publish(self._event(draw.choice(TYPES)), outbox=outbox)

    def _crash_gateway(self) -> None:
        """Crash a gateway that is linked with another domain, often one that has just published something."""
        draw = self.world.random
        if acting := sorted(set(self.interest.acting.values())):
            node = self.hosts[draw.choice(acting)]
            if draw.random() < 0.5:
                self._publish()
            self.world.after(draw.choice([0.0, 0.05, 0.3]), partial(self._crash_now, node))

    def _break_foreign(self) -> None:
        self.breaks += 1
        self.foreign_links.break_some()

    def _partition(self) -> None:
        """Divide the servers within their domains."""
        draw = self.world.random
        self.partitions += 1
        self.links.partition({name: draw.randrange(2) for name in self.nodes})
        self.world.after(draw.uniform(0.1, draw.choice([2.0, 15.0])), partial(self.links.partition, {}))

    def _divide(self) -> None:
        """Divide the domains from each other."""
        draw = self.world.random
        sides = {name: draw.randrange(2) for name in self.layout.domains}
        self._divide_into({link_name(each.domain, each.name): sides[each.domain] for each in self.hosts.values()})

    def _isolate(self) -> None:
        """Divide one gateway from all other domains."""
        gateway = self.hosts[
            self.world.random.choice([each for one in self.layout.domains.values() for each in one.gateways])
        ]
        self._divide_into({link_name(gateway.domain, gateway.name): 1})

    def _divide_into(self, sides: dict[str, int]) -> None:
        draw = self.world.random
        self.partitions += 1
        self.foreign_links.partition(sides)
        self.world.after(
            draw.uniform(0.1, draw.choice([2.0, 10.0, DIVIDED_S_MAX])), partial(self.foreign_links.partition, {})
        )

    def _repair(self) -> None:
        super()._repair()
        self.foreign_links.partition({})
        self.foreign_links.delay_s_max = 0.05

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_promises(self) -> None:
        self._federation_truth = FederationTruth(self.layout, self.hosts, self.devices, self.interest)
        self.problems += self._federation_truth.problems
        self._check_rest()

    def _check_rest(self) -> None:
        self._check_interest()
        super()._check_rest()
        for device in self.devices:
            device.unsubscribe_all()
        self._wait()
        self._check_interest()
        super()._check_rest()

    def _check_interest(self) -> None:
        marks = [mark_of(each.subscription) for device in self.devices for each in device.asked.values()]
        self.problems += check_interest(self.layout, self.hosts, marks)
