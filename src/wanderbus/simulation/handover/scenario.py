"""Simulated domain whose sessions move from server to server (SPEC L-01 to L-04, J-08).

Servers and devices crash at every step, links between servers are slow, break and are divided, several moves of one
session are requested at once, and events are published all the time, in ordered and in decentralised channels.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.interest_set import MODES
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig, Role
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DOMAIN
from wanderbus.simulation.domains.domain_scenario import FILTER_LEASE_S, DomainScenario
from wanderbus.simulation.handover.checkers import HandoverTruth
from wanderbus.simulation.handover.device import HandoverDevice, VisitingDevice
from wanderbus.simulation.handover.node import OPERATOR, HandoverNode
from wanderbus.subscription import EVERY_SUBJECT

ACTIVE_S: Final = 20.0
SMALL_PIECE_BYTES: Final = 300
"""Size of the pieces in which queues move in every eighth world: two or three notifications."""

SMALL_WINDOW: Final = 2
"""Notifications that a device of these worlds is sent before it acknowledges one."""

CLOCKS_APART_S: Final = 60.0
"""Time by which the clocks of two servers differ at most, in every seventh world."""

MANY_DEVICES: Final = 10
"""Devices of one session in every ninth world; with more such sessions, a world would take minutes."""

SUBJECTS: Final = ("A", "B", "C", "D")
ROLES: Final[dict[str, Role]] = {OPERATOR: "administrator"}
_KEY: Final = bytes(32)


class HandoverScenario(DomainScenario):
    """A world with a domain whose sessions move, set up by the seed."""

    active_s = ACTIVE_S
    counted: ClassVar = {
        "servers": "servers",
        "events": "events",
        "notifications": "notifications",
        "subscriptions": "subscriptions",
        "requested": "moves requested",
        "moves": "sessions moved",
        "pieces": "pieces of queues that followed",
        "roamed": "devices that came near to another server",
        "visits": "calls of publishers at another server",
        "replies": "replies",
        "held_back": "events held back by publishers",
        "crashes": "server crashes",
        "breaks": "broken links",
        "partitions": "partitions",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self._handover_truth: HandoverTruth | None = None
        self._handed: list[HandoverDevice] = []
        self._visitors: list[VisitingDevice] = []
        self._roamed = 0
        names = [f"s{number}" for number in range(1, draw.choice([2, 3, 3, 4]) + 1)]
        directory = Directory(ChannelGroups(_KEY, 8), first_table(8, names, _KEY))
        decentralised = draw.choice([(), SUBJECTS[:2], SUBJECTS[:2], SUBJECTS])
        merging = Merging(draw.choice(MODES), 0.7)
        window, self.links.delay_s_max = draw.choice([(1, 0.005), (256, 0.005), (256, 0.05), (3, 0.5), (256, 0.5)])
        window = SMALL_WINDOW if self._has_long_queues else window
        config = BrokerConfig(
            sweep_s=None, unacknowledged_max=window, publisher_filter_lease_s=FILTER_LEASE_S, roles=ROLES
        )
        # Where an engine has some subjects only, no session moves.
        engine_subjects = SUBJECTS if seed % 5 == 0 else (EVERY_SUBJECT,)
        self.homes: dict[str, HandoverNode] = {}
        for name in names:
            own = None
            if decentralised:
                own = DecentralisedChannels(
                    directory,
                    name,
                    names,
                    lambda subject: subject in decentralised,
                    lambda subject: merging,
                    (merging,),
                    has_ordered=len(decentralised) < len(SUBJECTS),
                )
            others = [each for each in names if each != name]
            channels = OwnChannels(directory, name, lambda subject: merging, own, others, b"1")
            node = HandoverNode(self.world, name, channels, self.engines.config(config, engine_subjects))
            node.others = others
            node.piece_bytes = SMALL_PIECE_BYTES if self._has_long_queues else node.piece_bytes
            node.may_close = lambda link: True
            node.clock_ahead_s = draw.uniform(0.0, CLOCKS_APART_S) if seed % 7 == 3 else 0.0
            self._add_node(node)
            self.homes[name] = node
        for number in range(draw.choice([1, 2, 4])):
            self._add_user(f"sip:u{number}@{DOMAIN}")
        for number in range(2 if seed % 6 == 5 else 0):
            self._add_visitor(f"sip:v{number}@{DOMAIN}")

    def _devices_of_a_user(self) -> int:
        is_first = not self.devices
        return MANY_DEVICES if is_first and self.seed % 9 == 2 else self.world.random.choice([1, 1, 2])

    @property
    def _has_long_queues(self) -> bool:
        """Return whether much waits in sessions that move, and the queues move in small pieces."""
        return self.seed % 8 == 7

    def _add_visitor(self, user: str) -> None:
        """Add a device that publishes at one server and another."""
        draw = self.world.random
        device = VisitingDevice(self.world, draw.choice(list(self.homes.values())), user, f"d of {user}", 0.02)
        device.nodes = self.homes
        device.retry_s = 0.01, 1.0
        self.devices.append(device)
        self._handed.append(device)
        self._visitors.append(device)

    def _add_user(self, user: str) -> None:
        """Add a user with one device or several; in every fourth world devices hold back events that nobody wants."""
        draw = self.world.random
        home, is_filtering = draw.choice(list(self.homes.values())), self.seed % 4 == 0
        for place in range(self._devices_of_a_user()):
            delay_s = draw.choice([0.001, 0.02, 0.3] if is_filtering else [0.001, 0.02])
            delay_s = 0.05 if self._has_long_queues else delay_s
            device = HandoverDevice(self.world, home, user, f"d{place} of {user}", delay_s, is_filtering=is_filtering)
            device.nodes = self.homes
            device.retry_s = 0.01, 1.0
            device.on_event = partial(self._reply, device)
            device.on_moved = partial(self._reply_at_once, device)
            self.devices.append(device)
            self._handed.append(device)

    def counts(self) -> dict[str, float]:
        truth = self._handover_truth
        return super().counts() | {
            "events": 0 if truth is None else len(truth.published),
            "subscriptions": 0 if truth is None else len(truth.subscriptions),
            "notifications": 0 if truth is None else sum(len(each.notified) for each in truth.subscriptions.values()),
            "moves": 0 if truth is None else truth.moves,
            "pieces": 0 if truth is None else truth.pieces,
            "roamed": self._roamed,
            "visits": sum(each.visits for each in self._visitors),
            "requested": sum(node.requested for node in self.homes.values()),
            "replies": sum(len(each.causes) for each in self._handed),
        }

    def _plan(self) -> None:
        world, draw = self.world, self.world.random
        for device in self.devices:
            for _ in range(draw.choice([1, 2, 5])):
                world.at(draw.uniform(0.1, 3.0), partial(self._subscribe, device))
        world.at_random(draw.choice([20, 60, 200]), 1.0, ACTIVE_S, self._publish)
        world.at_random(draw.choice([2, 6, 15]), 3.0, ACTIVE_S, self._move_session)
        for _ in range(draw.choice([0, 0, 1, 3])):
            node, at = draw.choice(list(self.homes.values())), draw.uniform(3.0, ACTIVE_S)
            world.at(at, partial(node.drain, on=True))
            world.at(at + draw.choice([0.5, 5.0, 50.0]), partial(node.drain, on=False))
        world.at_random(draw.choice([0, 3, 10]), 3.0, ACTIVE_S, self._change_subscriptions)
        if self.seed % 6 == 1:
            world.at_random(draw.choice([5, 15]), 3.0, ACTIVE_S, self._roam)
        if self._has_long_queues:
            world.at_random(draw.choice([4, 8]), 3.0, ACTIVE_S, self._move_long_queue)
        for visitor in self._visitors:
            world.at_random(draw.choice([2, 10]), 3.0, ACTIVE_S, visitor.move)
            world.at_random(30, 1.0, ACTIVE_S, partial(self._publish_by, visitor))
        troubles = [self._crash, self._crash, self._break, self._partition, self._lose, self._move, self._crash_device]
        chosen = draw.sample(troubles, draw.randint(0, len(troubles)))
        for _ in range(draw.choice([2, 6, 12]) if chosen else 0):
            world.at(draw.uniform(3.0, ACTIVE_S), draw.choice(chosen))

    def _subscribe(self, device: DomainDevice) -> None:
        """Request a subscription; in worlds whose devices hold back events, they want few."""
        draw = self.world.random
        low = draw.randrange(9)
        if self.seed % 4 == 0:
            device.subscribe(draw.choice(SUBJECTS), f"x >= {low} and x < {low + 3}")
        else:
            device.subscribe(draw.choice([*SUBJECTS, "*"]), draw.choice([f"x >= {low}", "everything", f"x < {low}"]))

    def _change_subscriptions(self) -> None:
        """Let a device subscribe or unsubscribe, also while its session is on its way."""
        draw, device = self.world.random, self._device()
        live = [identity for identity, each in device.asked.items() if each.state == "live"]
        if live and draw.random() < 0.3:
            device.unsubscribe(draw.choice(live))
        else:
            self._subscribe(device)

    def _reply(self, device: HandoverDevice, event: Event) -> None:
        """Let a device publish because of some of the events that it receives, at once or when its session may move."""
        draw = self.world.random
        if self.world.now < ACTIVE_S and draw.random() < min(0.1, 0.4 / len(self._handed)):
            self.world.after(
                draw.choice([0.0, 0.5, 1.5]), partial(device.reply, event, self._event(draw.choice(SUBJECTS)))
            )

    def _reply_at_once(self, device: HandoverDevice, event: Event) -> None:
        """Let a device whose session has moved publish because of what it received before."""
        if self.world.now < ACTIVE_S:
            device.reply(event, self._event(self.world.random.choice(SUBJECTS)))

    def _publish(self) -> None:
        self._publish_by(self._device())

    def _publish_by(self, device: DomainDevice) -> None:
        draw = self.world.random
        outbox = draw.random() < 0.5
        for _ in range(draw.choice([1, 1, 5])):
            device.publish(self._event(draw.choice(SUBJECTS)), outbox=outbox)

    def _move_session(self) -> None:
        """Let the owner of a session move it to another server, and often something else happen meanwhile."""
        draw = self.world.random
        mover = self._device()
        for node in [each for each in self.homes.values() if each.owns(mover.user)]:
            target = draw.choice(node.others)
            node.move(mover.user, "default", target)
            victim = draw.choice([node, self.homes[target]])
            if draw.random() < 0.5:
                self.world.at_random(20, self.world.now, self.world.now + draw.choice([0.1, 2.0]), self._publish)
            delay_s = draw.choice([0.3, 4 * self.links.delay_s_max])
            for share, trouble in (
                (0.3, partial(self._crash_now, victim)),
                (0.3, partial(self._subscribe, mover)),
                (0.1, self._break),
            ):
                if draw.random() < share:
                    self.world.after(draw.uniform(0.0, delay_s), trouble)

    def _move_long_queue(self) -> None:
        """Let a session move in which much waits, and often a server crash before all of it has followed."""
        draw = self.world.random
        for _ in range(draw.choice([20, 60])):
            self._publish()
        self.world.after(draw.uniform(0.0, 0.3), self._move_session)
        if draw.random() < 0.5:
            victim = draw.choice(list(self.homes.values()))
            self.world.after(draw.uniform(0.2, 3.0), partial(self._crash_now, victim))

    def _roam(self) -> None:
        """Let a connected device come near to a server, the one that has its session or another."""
        draw, device = self.world.random, self.world.random.choice(self._handed)
        if device.wire is not None and isinstance(device.node, HandoverNode):
            near = draw.choice([device.node.name, *device.node.others])
            self._roamed += near != device.node.name
            device.node.locate(device.user, device.name, near)

    def _before_rest(self) -> None:
        for node in self.homes.values():
            node.drain(on=False)

    def _check_promises(self) -> None:
        self._handover_truth = self._make_handover_truth()
        self.problems += self._handover_truth.problems
        self._check_rest()

    def _make_handover_truth(self) -> HandoverTruth:
        return HandoverTruth(self.nodes, self._handed)
