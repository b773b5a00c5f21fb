"""Time from publish to delivery in a domain without faults and below its limits, in virtual time (SPEC J-09)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.client.machine.messages import ItemArrived
from wanderbus.event import Event, Notification
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.settings.event_domain import Model
from wanderbus.simulation.disk import SYNC_S_MAX
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.world import World

AGENT_LINK_S: Final = 0.02
SERVER_LINK_S_MAX: Final = 0.05
LINKS: Final[dict[Model, int]] = {"ordered": 2, "decentralised": 1}
"""Links between servers that an event passes at most."""
EVENTS: Final = 600
RATE_PER_S: Final = 200.0
SERVERS: Final = ("s0", "s1", "s2")
SUBJECTS: Final = tuple(f"Type.{number}" for number in range(8))
MERGING: Final = Merging("perfect", 1.0)


class Reader(DomainDevice):
    """A device that notes how long each event was on its way."""

    def __init__(self, *arguments: Any) -> None:
        self.took_s: list[float] = []
        super().__init__(*arguments)

    def _reported(self, output: Any) -> None:
        match output:
            case ItemArrived(item=Notification(event=event)):
                self.took_s.append(self.world.now - float(str(event["At"])))
        super()._reported(output)


def nodes_of(world: World, model: Model, window: int) -> list[DomainNode]:
    """Return running servers that are linked with each other."""
    key = world.random.randbytes(16)
    groups = ChannelGroups(key, 16)
    directory = Directory(groups, first_table(groups.count, SERVERS, key))
    nodes = {}
    for name in SERVERS:
        decentralised = DecentralisedChannels(directory, name, SERVERS, lambda _: True, lambda _: MERGING, [MERGING])
        channels = OwnChannels(directory, name, lambda _: MERGING, decentralised if model == "decentralised" else None)
        nodes[name] = DomainNode(world, name, channels, BrokerConfig(sweep_s=None, unacknowledged_max=window))
    links = DomainLinks(world, nodes)
    links.delay_s_max = SERVER_LINK_S_MAX
    for node in nodes.values():
        node.links = links
        node.start()
    return list(nodes.values())


def times_s(seed: int, model: Model, window: int = 256) -> list[float]:
    """Return how long each event took to each subscriber; each server has a publisher and a subscriber to all."""
    world = World(seed)
    nodes = nodes_of(world, model, window)
    publishers = [DomainDevice(world, node, f"sip:p{node.name}@sim.test", "d", AGENT_LINK_S) for node in nodes]
    readers = [Reader(world, node, f"sip:r{node.name}@sim.test", "d", AGENT_LINK_S) for node in nodes]
    world.run(5.0)
    for reader in readers:
        reader.subscribe("*", "")
    world.run(10.0)

    def publish(number: int) -> None:
        event = Event(world.random.choice(SUBJECTS), {"Uid": str(number), "At": world.now})
        world.random.choice(publishers).publish(event, outbox=False)

    at = 10.0
    for number in range(EVENTS):
        at += world.random.expovariate(RATE_PER_S)
        world.at(at, lambda number=number: publish(number))  # type: ignore[misc]
    world.run(at + 60.0)
    return [each for reader in readers for each in reader.took_s]


def bound_s(model: Model) -> float:
    """Return the bound of docs/domains.md: links, and at each of two logs the sync that is running and one's own."""
    return 2 * AGENT_LINK_S + LINKS[model] * SERVER_LINK_S_MAX + 2 * 2 * SYNC_S_MAX


@pytest.mark.parametrize("model", LINKS)
@pytest.mark.parametrize("seed", range(4))
def test_j09_delivery_takes_the_links_and_the_syncs_of_two_logs_at_most(seed: int, model: Model) -> None:
    found = times_s(seed, model)
    assert len(found) == EVENTS * len(SERVERS)
    assert 0.5 * bound_s(model) < max(found) <= bound_s(model)


def test_delivery_takes_longer_if_every_event_waits_for_an_acknowledgement() -> None:
    found = times_s(0, "ordered", window=1)
    assert len(found) == EVENTS * len(SERVERS)
    assert max(found) > bound_s("ordered")
