"""Simulated ordered domain of 1 to 50 servers: each channel has one leader, and users anywhere (SPEC K-02, J-10).

Servers crash with torn and lost writes, links between them are slow, break and are divided, disks fill; devices crash,
move and repeat themselves. The logs tell whether every event is delivered once, in order, to all that subscribed
before; and when all is quiet, the leaders have what the servers want.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, Final

from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.interest_set import MODES
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_links import RequestedLinks
from wanderbus.simulation.domains.engines import Engines
from wanderbus.simulation.domains.ordered_checkers import OrderedTruth, check_tables
from wanderbus.simulation.domains.ordered_device import OrderedDevice
from wanderbus.simulation.domains.ordered_history import ChannelReader
from wanderbus.simulation.domains.ordered_node import OrderedNode
from wanderbus.simulation.scenario import Scenario
from wanderbus.subscription import Since

ACTIVE_S: Final = 15.0
QUIET_S: Final = 40.0
"""Time without a new record after which the world is quiet: longer than each pause until something is repeated."""
SETTLE_S: Final = 1_500.0
"""Longest time until the world is quiet."""
_WITH_READERS: Final = 5
"""One of so many worlds has readers of channels by number."""
_WITH_PAST: Final = 5
_PAST_WORLDS: Final = (1, 4)
"""Remainders by ``_WITH_PAST`` of the seeds of worlds in which subscriptions begin in the past."""
_RUSH_S: Final = 3.0
"""Time in which many events and subscriptions of one subject come, in such a world."""
FILTER_LEASE_S: Final = 8.0
"""Lease of the filters of devices that hold back events."""
_SUBJECTS: Final = ("Air", "Gate", "Rail", "Road", "Sea", "Tram")
_PARENTS: Final = {"Gate": "Air", "Stand": "Gate", "Tram": "Rail"}


class OrderedScenario(Scenario):
    """A world with an ordered domain, set up by the seed."""

    counted: ClassVar = {
        "servers": "servers",
        "events": "events",
        "arrivals": "arrivals at other servers",
        "deliveries": "notifications",
        "subscriptions": "subscriptions",
        "crashes": "server crashes",
        "device_crashes": "devices killed",
        "breaks": "broken links",
        "partitions": "partitions",
        "full_disks": "full disks",
        "gaps": "gaps",
        "held_back": "events held back by publishers",
        "held_back_apart": "of channels led elsewhere",
        "pasts": "subscriptions that began in the past",
        "pasts_elsewhere": "of them at another server than the leader",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self._truth: OrderedTruth | None = None
        self.breaks = self.partitions = self.full_disks = self.device_crashes = self.events = self.subscriptions = 0
        self.suspensions = self.kicks = 0
        self._spared: dict[str, float] = {}
        """Time until which each of these servers does not crash."""
        count = draw.choice([1, 2, 2, 3, 3, 3, 4, 5, 7]) if draw.random() < 0.98 else draw.randint(15, 50)
        names = [f"s{number}" for number in range(count)]
        key = draw.randbytes(16)
        groups = ChannelGroups(key, draw.choice([1, 4, 16, 64]), parents=_PARENTS if draw.random() < 0.6 else {})
        directory = Directory(groups, first_table(groups.count, names, key))
        modes = [draw.choice(MODES)] if draw.random() < 0.6 else MODES
        self._merging = {
            subject: Merging(draw.choice(modes), draw.choice([0.5, 0.9]))
            for subject in (*_SUBJECTS, *_PARENTS.values(), "Stand", "*")
        }
        self._top = groups.hierarchy.top
        window, delay_s_max = draw.choice([(1, 0.005), (1, 0.05), (3, 0.5), (256, 0.05), (256, 0.5), (256, 3.0)])
        config = BrokerConfig(sweep_s=None, unacknowledged_max=window, publisher_filter_lease_s=FILTER_LEASE_S)
        self._is_filtering = seed % 3 == 0
        """True if all devices hold back events that nobody wants: in every third world."""
        self.engines = Engines(self.world, seed, ACTIVE_S)
        self._has_past = seed % _WITH_PAST in _PAST_WORLDS
        self.nodes = {
            name: OrderedNode(
                self.world,
                name,
                OwnChannels(directory, name, self._merging_of),
                self.engines.config(config, _SUBJECTS),
            )
            for name in names
        }
        self.links = RequestedLinks(self.world, self.nodes, delay_s_max)
        self.engines.plan(self.nodes.values())
        for node in self.nodes.values():
            node.links = self.links
            node.start()
        self.devices: list[OrderedDevice] = []
        for number in range(draw.choice([1, 2, 4, 8]) + count // 4):
            self._add_user(f"sip:u{number}@sim.test", draw.choice(list(self.nodes.values())))
        self._moment = 0
        self.readers = [
            ChannelReader(
                self.world, draw.choice(list(self.nodes.values())), draw.choice([*_SUBJECTS, "Stand"]), number
            )
            for number in range(draw.choice([2, 4, 8]) if seed % _WITH_READERS == 0 else 0)
        ]

    def _check_promises(self) -> None:
        self._settle()
        self._truth = truth = OrderedTruth(self.nodes, self.devices)
        truth.check()
        self.problems += truth.problems
        self._check_readers()
        self._check_rest(is_empty=False)
        for device in self.devices:
            device.unsubscribe_all()
        self._wait()
        self._check_rest(is_empty=True)

    def counts(self) -> dict[str, float]:
        servers = [] if self._truth is None else list(self._truth.servers.values())
        pasts = [each.past for server in servers for each in server.followed.values()]
        held_back = [
            (device.node, each.event.subject)
            for device in self.devices
            for each in device.published.values()
            if each.held_back
        ]
        return {
            "servers": len(self.nodes),
            "devices": len(self.devices),
            "subscriptions": sum(len(each.followed) for each in servers),
            "events": sum(len(each.published) for each in servers),
            "arrivals": sum(len(numbers) for each in servers for numbers in each.arrived.values()),
            "deliveries": sum(each.deliveries for each in servers),
            "crashes": sum(node.crashes for node in self.nodes.values()),
            "device_crashes": self.device_crashes,
            "breaks": self.breaks,
            "partitions": self.partitions,
            "full_disks": self.full_disks,
            "gaps": sum(len(each.losses) for each in servers),
            "held_back": len(held_back),
            "held_back_apart": sum(not node.channels.leads(subject) for node, subject in held_back),
            "suspensions": self.suspensions,
            "kicks": self.kicks,
            "listed": sum(len(each.found) for each in self.readers),
            "refusals": sum(each.refusals for each in self.readers),
            "pasts": sum(each.first is not None for each in pasts),
            "pasts_elsewhere": sum(each.is_elsewhere for each in pasts),
            "pieces": sum(each.pieces for each in pasts),
        }

    def _merging_of(self, subject: str) -> Merging:
        return self._merging[self._top(subject)]

    def _add_user(self, user: str, node: OrderedNode) -> None:
        for number in range(self.world.random.choice([1, 1, 1, 2])):
            delay_s = self.world.random.choice([0.001, 0.02, 0.2])
            device = OrderedDevice(
                self.world,
                node,
                user,
                f"d{number} of {user}",
                delay_s,
                self._next_moment,
                is_filtering=self._is_filtering,
            )
            self.devices.append(device)

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment

    # Events of the world --------------------------------------------------------------------------------------------

    def _play(self) -> None:
        world, draw = self.world, self.world.random
        for action, most in (
            (self._subscribe, draw.choice([5, 20, 40])),
            (self._unsubscribe, draw.choice([0, 5, 20])),
            (self._renew, draw.choice([0, 3, 10])),
            (self._publish, draw.choice([10, 40, 100])),
        ):
            for _ in range(most):
                world.at(draw.uniform(0.0, ACTIVE_S), action)
        if self._has_past:
            for _ in range(draw.choice([1, 3, 6])):
                world.at(draw.uniform(0.0, ACTIVE_S - _RUSH_S), self._rush)
        disturbances = [self._crash, self._crash, self._break, self._break, self._partition, self._fill, self._lose]
        disturbances += [self._crash_device, self._move]
        chosen = draw.sample(disturbances, draw.randint(0, len(disturbances)))
        if draw.random() < 0.2:
            chosen += [self._drop_log, self._partition]
        for _ in range(draw.choice([3, 10, 25]) if chosen else 0):
            world.at(draw.uniform(0.2, ACTIVE_S), draw.choice(chosen))
        if self._is_filtering:
            self._disturb_publishers()
        world.run(ACTIVE_S)

    def _disturb_publishers(self) -> None:
        """Suspend and remove devices that hold back events, and let some publish a lot, at times of their own."""
        draw = Random(f"publishers {self.seed}")
        for _ in range(draw.choice([0, 3, 10])):
            self.suspensions += 1
            device, seconds = draw.choice(self.devices), draw.choice([0.5, 3.0, FILTER_LEASE_S + 1.0, 20.0])
            self.world.at(draw.uniform(2.0, ACTIVE_S), lambda device=device, s=seconds: device.suspend(s))  # type: ignore[misc]
        kicks = Random(f"kicks {self.seed}")
        for _ in range(draw.choice([0, 10, 30])):
            device, crash_s = draw.choice(self.devices), kicks.choice([None, 0.01, 0.5])
            self.world.at(draw.uniform(2.0, ACTIVE_S), lambda device=device, s=crash_s: self._kick(device, s))  # type: ignore[misc]
        for _ in range(draw.choice([0, 2, 4])):
            self._publish_often(draw)

    def _publish_often(self, draw: Random) -> None:
        """Let one device publish events of one subject all the time; subscriptions come and go, and servers suffer."""
        device, subject = draw.choice(self.devices), self._subject()
        for number in range(120):
            self.world.at(1.0 + number / 8, lambda: device.publish(self._event(subject), outbox=False))
        for _ in range(8):
            self.world.at(draw.uniform(2.0, ACTIVE_S), lambda: self._subscribe_for_a_while(subject))
        for _ in range(draw.choice([0, 2, 6])):
            self.world.at(draw.uniform(2.0, ACTIVE_S), draw.choice([self._break, self._partition, self._crash]))

    def _subscribe_for_a_while(self, subject: str) -> None:
        """Subscribe to a third of the events of a subject, and end that if it is answered soon."""
        device = self._device()
        before = set(device.asked)
        self.subscriptions += 1
        low = self.world.random.randrange(9)
        device.subscribe(subject, f"x >= {low} and x < {low + 4}" + " " * self.subscriptions)

        def end() -> None:
            for each in [one for one in device.asked if one not in before]:
                device.unsubscribe(each)

        self.world.after(self.world.random.uniform(2.0, 4.0), end)

    def _kick(self, device: OrderedDevice, crash_s: float | None) -> None:
        """Remove a device whose user has no subscriptions; it notices later that its link is gone.

        In every second world its server crashes soon after, unless ``crash_s`` is None; in the others it does not crash
        during the lease of the device, which runs out in the same life.
        """
        only_publishes = not any(each.subscribed for each in self.devices if each.user == device.user)
        if device.is_settled and only_publishes and device.node.kick(device.user, device.name):
            self.kicks += 1
            if self.seed % 2:
                self._spared[device.node.name] = self.world.now + FILTER_LEASE_S
            elif crash_s is not None:
                self.world.after(crash_s, lambda: self._crash_now(device.node))

    def _settle(self) -> None:
        """Repair everything, and wait until it is quiet."""
        self.links.partition({})
        self.links.delay_s_max = 0.05
        self.engines.end_disturbances(self.nodes.values())
        for node in self.nodes.values():
            node.fill_disk(is_full=False)
            node.disk.on_append = lambda: None
        self._wait()

    def _wait(self) -> None:
        """Let time pass until nothing is written any more."""
        end, before = self.world.now + SETTLE_S, -1
        while self.world.now < end and (records := sum(len(node.disk.log) for node in self.nodes.values())) != before:
            before = records
            for node in self.nodes.values():
                node.end_visits()
            if self._has_past:
                for device in self.devices:
                    device.read_all()  # a queue that one device does not read leaves no room for the past
            self.world.run(self.world.now + QUIET_S)

    def _device(self) -> OrderedDevice:
        return self.world.random.choice(self.devices)

    def _expression(self) -> str:
        draw = self.world.random
        low, high = draw.randrange(10), draw.randrange(10)
        forms: tuple[str, ...] = (
            "everything",
            f"x < {low}",
            f"x >= {low}",
            f"x == {low}",
            f"x >= {low} and x < {low + 3}",
        )
        forms += (f"y == {high % 3}", f"x < {low} and y == {high % 3}", f"x == {low} or y == {high % 3}")
        self.subscriptions += 1
        return draw.choice(forms) + " " * self.subscriptions  # another request, so that none inherits from another

    def _subject(self) -> str:
        return self.world.random.choice([*_SUBJECTS, "Stand"])

    def _subscribe(self) -> None:
        device, draw = self._device(), self.world.random
        subject = "*" if draw.random() < 0.1 else self._subject()
        since = None
        if self._has_past and draw.random() < 0.7:
            since = self._since(device.node.channels.leaders([subject]))
        device.subscribe(subject, self._expression(), since)

    def _rush(self) -> None:
        """Publish many events of one subject while subscriptions to it begin in the past."""
        world, draw, subject = self.world, self.world.random, self._subject()

        def publish() -> None:
            device = self._device()
            for _ in range(draw.choice([1, 5, 20])):
                device.publish(self._event(subject), outbox=draw.random() < 0.5)

        def subscribe() -> None:
            device = self._device()
            since = self._since(device.node.channels.leaders([subject]))
            device.subscribe(subject, self._expression(), since if draw.random() < 0.7 else None)

        for action, most in ((publish, draw.choice([5, 20])), (subscribe, draw.choice([2, 6]))):
            for _ in range(most):
                world.after(draw.uniform(0.0, _RUSH_S), action)

    def _since(self, leaders: frozenset[str]) -> Since | None:
        """Return a point in the past of a channel; None if it has several leaders."""
        if len(leaders) > 1:
            return None
        draw = self.world.random
        accepted = [each.accepted for device in self.devices for each in device.published.values() if each.accepted]
        of_leader = [each for each in accepted if each.origin in leaders]
        ago_us = draw.randrange(round(min(self.world.now, draw.choice([0.05, 0.5, ACTIVE_S])) * 1e6) + 1)
        points = [Since(), Since(at_us=self.world.wall_us - ago_us), Since(at_us=self.world.wall_us - ago_us)]
        return draw.choice([*points, Since(event=draw.choice(of_leader))] if of_leader else points)

    def _unsubscribe(self) -> None:
        device = self._device()
        if device.asked:
            device.unsubscribe(self.world.random.choice(list(device.asked)))

    def _renew(self) -> None:
        device = self._device()
        if ended := [name for name, each in device.asked.items() if each.state == "ended"]:
            device.renew(self.world.random.choice(ended))

    def _event(self, subject: str = "") -> Event:
        draw = self.world.random
        self.events += 1
        return Event(
            subject or self._subject(), {"x": draw.randrange(12), "y": draw.randrange(3), "Uid": f"e{self.events}"}
        )

    def _publish(self) -> None:
        device, draw = self._device(), self.world.random
        outbox = draw.random() < 0.5
        for _ in range(draw.choice([1, 1, 1, 5, 20])):
            device.publish(self._event(), outbox=outbox)

    def _node(self) -> OrderedNode:
        return self.world.random.choice(list(self.nodes.values()))

    def _crash(self) -> None:
        """Crash a server, now or when it next writes."""
        node = self._node()
        if self.world.random.random() < 0.5:
            self._crash_now(node)
        else:
            node.disk.on_append = lambda: self.world.after(0.0, lambda: self._crash_now(node))

    def _crash_now(self, node: OrderedNode) -> None:
        node.disk.on_append = lambda: None
        if node.alive and self._spared.get(node.name, 0.0) <= self.world.now:
            node.crash(lose_rows=self.world.random.random() < 0.3)
            self.problems += node.problems
            node.problems.clear()
            for device in self.devices:
                if device.node is node:
                    device.server_crashed()
            self.world.after(self.world.random.choice([0.01, 0.5, 4.0]), node.start)

    def _break(self) -> None:
        self.breaks += 1
        self.links.break_some()

    def _partition(self) -> None:
        self.partitions += 1
        self.links.partition({name: self.world.random.randrange(2) for name in self.nodes})
        self.world.after(self.world.random.uniform(0.1, 5.0), lambda: self.links.partition({}))

    def _fill(self) -> None:
        node = self._node()
        self.full_disks += 1
        node.fill_disk(is_full=True)
        self.world.after(self.world.random.uniform(0.05, 4.0), lambda: node.fill_disk(is_full=False))

    def _drop_log(self) -> None:
        self._node().drop_log()

    def _lose(self) -> None:
        self._device().lose()

    def _move(self) -> None:
        self._device().reconnect()

    def _crash_device(self) -> None:
        self.device_crashes += 1
        self._device().crash()

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_readers(self) -> None:
        """Let the readers of channels come to the end, and compare what they have with the logs."""
        reached = -1
        while reached != (reached := sum(len(each.found) for each in self.readers)):
            self.world.run(self.world.now + QUIET_S)
        for reader in self.readers:
            reader.is_stopped = True
        self.world.run(self.world.now + QUIET_S)
        for reader in self.readers:
            self.problems += reader.check(self.nodes[reader.node.channels.leader(reader.subject)])

    def _check_rest(self, *, is_empty: bool) -> None:
        events = [self._event() for _ in range(20)] if not is_empty else []
        self.problems += check_tables(self.nodes, events, is_empty=is_empty)
        for node in self.nodes.values():
            self.problems += [*node.problems, *node.check_rows(), *node.check_nothing_waits()]
            node.problems.clear()
        for device in self.devices:
            if not device.is_settled:
                self.problems.append(f"{device.user}/{device.name} waits for answers")
