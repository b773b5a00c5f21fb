"""Simulated domains that share events, and whose sessions move from domain to domain (SPEC L-01, L-05).

Events are published in all domains while sessions move. Servers crash at every step, links within domains and between
them are slow and break, and domains are divided.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import ClassVar, Final

from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.federation.interest import check_interest
from wanderbus.simulation.federation.layout import TYPES, FederationLayout, SimulatedDomain
from wanderbus.simulation.federation.moving_node import MovingNode
from wanderbus.simulation.federation.moving_truth import MovingTruth
from wanderbus.simulation.federation.scenario import FederationScenario
from wanderbus.simulation.handover.device import HandoverDevice

ACTIVE_S: Final = 60.0
SUBSCRIBED_S: Final = 3.0
"""Second until which subscriptions begin that have to get everything from the second ``COUNTED_S`` on."""
COUNTED_S: Final = 15.0
SMALL_PIECE_BYTES: Final = 300
SUBJECTS: Final = ("B", "C", "D", "AA", "*")
"""Subjects of subscriptions: domains may differ in what is below A."""


class MovingScenario(FederationScenario):
    """A world with several domains, set up by the seed; some users subscribe and move, others publish."""

    active_s = ACTIVE_S
    counted: ClassVar = {
        "domains": "domains",
        "servers": "servers",
        "events": "events",
        "notifications": "notifications",
        "subscriptions": "subscriptions",
        "requested": "moves requested",
        "moves": "sessions moved",
        "pieces": "pieces of queues that followed",
        "crashes": "server crashes",
        "breaks": "broken links",
        "partitions": "partitions",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self._moment = self._subscribed = 0
        self.moving: list[HandoverDevice] = []
        self._publishers: list[DomainDevice] = []
        self._moving_truth: MovingTruth | None = None
        self.homes: dict[str, MovingNode] = {}
        super().__init__(seed, keep_trace=keep_trace)
        for domain in self.layout.domains.values():
            for number in range(self.world.random.choice([1, 1, 2])):
                self._add_moving(domain, f"sip:m{number}@{domain.name}")

    def _make_layout(self, seed: int, draw: Random) -> FederationLayout:
        layout = FederationLayout(seed, draw, self.method)
        for source, target in layout.pairs():
            source.sends = {**source.sends, target.name: frozenset(TYPES)}
            target.receives = {**target.receives, source.name: frozenset(TYPES)}
        layout.sessions_move = True
        return layout

    def _node_type(self) -> type[MovingNode]:
        return MovingNode

    def _make_node(self, domain: SimulatedDomain, name: str, config: BrokerConfig) -> MovingNode:
        node = super()._make_node(domain, name, config)
        assert isinstance(node, MovingNode)
        node.others = [each for each in domain.servers if each != name]
        node.piece_bytes = SMALL_PIECE_BYTES if self.seed % 4 == 3 else node.piece_bytes
        self.homes[name] = node
        return node

    def _add_user(self, domain: SimulatedDomain, user: str) -> None:
        before = len(self.devices)
        super()._add_user(domain, user)
        self._publishers += self.devices[before:]

    def _add_moving(self, domain: SimulatedDomain, user: str) -> None:
        """Add a user whose session moves, with one device or two."""
        draw = self.world.random
        node = self.homes[draw.choice(domain.servers)]
        for place in range(draw.choice([1, 1, 2])):
            device = HandoverDevice(
                self.world, node, user, f"d{place} of {user}", draw.choice([0.001, 0.02]), is_filtering=False
            )
            device.nodes = self.homes
            device.retry_s = 0.01, 1.0
            self.devices.append(device)
            self.moving.append(device)

    def counts(self) -> dict[str, float]:
        truth = self._moving_truth
        return super().counts() | {
            "events": 0 if truth is None else len(truth.origins),
            "subscriptions": 0 if truth is None else len(truth.subscriptions),
            "notifications": 0 if truth is None else sum(len(each.notified) for each in truth.subscriptions.values()),
            "moves": 0 if truth is None else truth.moves,
            "pieces": 0 if truth is None else truth.pieces,
            "requested": sum(node.requested for node in self.homes.values()),
        }

    # Events of the world --------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        world, draw = self.world, self.world.random
        world.at(SUBSCRIBED_S, self._note_subscribed)
        world.at(COUNTED_S, self._note_moment)
        for device in self.moving:
            for _ in range(draw.choice([1, 2, 3])):
                world.at(draw.uniform(0.1, SUBSCRIBED_S - 1.0), partial(self._subscribe, device))
        world.at_random(draw.choice([60, 150, 400]), 2.0, ACTIVE_S, self._publish)
        world.at_random(draw.choice([5, 12, 25]), COUNTED_S, ACTIVE_S, self._move_session)
        world.at_random(draw.choice([0, 3]), COUNTED_S, ACTIVE_S, self._change_subscriptions)
        troubles: list[Callable[[], None]] = [
            self._crash,
            self._crash,
            self._crash_gateway,
            self._break,
            self._break_foreign,
            self._partition,
            self._divide,
            self._isolate,
            self._lose,
            self._crash_device,
        ]
        chosen = draw.sample(troubles, draw.randint(0, len(troubles)))
        for _ in range(draw.choice([3, 8, 16]) if chosen else 0):
            world.at(draw.uniform(COUNTED_S, ACTIVE_S), draw.choice(chosen))

    def _note_subscribed(self) -> None:
        self._subscribed = self.world.moment()

    def _note_moment(self) -> None:
        self._moment = self.world.moment()

    def _subscribe(self, device: DomainDevice) -> None:
        draw = self.world.random
        low = draw.randrange(9)
        device.subscribe(draw.choice(SUBJECTS), draw.choice([f"x >= {low}", "x >= 0", f"x < {low}", f"y == {low % 3}"]))

    def _change_subscriptions(self) -> None:
        """Let a device subscribe or unsubscribe, also while its session is on its way."""
        draw, device = self.world.random, self.world.random.choice(self.moving)
        live = [identity for identity, each in device.asked.items() if each.state == "live"]
        if live and draw.random() < 0.3:
            device.unsubscribe(draw.choice(live))
        else:
            self._subscribe(device)

    def _publish(self) -> None:
        draw = self.world.random
        self._publish_from(draw.choice(self._publishers))

    def _publish_from(self, device: DomainDevice) -> None:
        draw = self.world.random
        outbox = draw.random() < 0.5
        for _ in range(draw.choice([1, 1, 5])):
            device.publish(self._event(draw.choice(TYPES)), outbox=outbox)

    def _move_session(self) -> None:
        """Let the owner of a session move it, mostly to another domain, and often something else happen meanwhile."""
        draw = self.world.random
        mover = draw.choice(self.moving)
        for node in [each for each in self.homes.values() if each.owns(mover.user)]:
            other = draw.choice([each for each in self.layout.domains.values() if each.name != node.domain])
            target = draw.choice([other.name, f"{other.name}/{draw.choice(other.servers)}"])
            if node.others and draw.random() < 0.2:
                target = draw.choice(node.others)
            node.move(mover.user, "default", target)
            if draw.random() < 0.6:
                self.world.at_random(20, self.world.now, self.world.now + draw.choice([0.3, 3.0]), self._publish)
            if draw.random() < 0.6:
                end = self.world.now + draw.choice([0.1, 1.0])
                self.world.at_random(10, self.world.now, end, partial(self._publish_from, mover))
            victim = self.homes[draw.choice([node.name, *other.servers, *other.gateways])]
            for share, trouble in (
                (0.25, partial(self._crash_now, victim)),
                (0.2, partial(self._subscribe, mover)),
                (0.1, self._break),
                (0.15, self._break_foreign),
            ):
                if draw.random() < share:
                    self.world.after(draw.uniform(0.0, draw.choice([0.3, 3.0])), trouble)

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_promises(self) -> None:
        self._moving_truth = MovingTruth(self.homes, self.moving, (self._subscribed, self._moment))
        self.problems += self._moving_truth.problems
        self._check_rest()

    def _check_interest(self) -> None:
        """Check that other domains have the interest of the domain in which each session is now (SPEC L-05)."""
        self.problems += check_interest(self.layout, self.hosts, ())
