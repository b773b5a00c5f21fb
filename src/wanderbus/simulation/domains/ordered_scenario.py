"""Simulated ordered domain of 1 to 50 servers: each channel has one leader, and users anywhere (SPEC K-02, J-10).

Servers crash with torn and lost writes, links between them are slow, break and are divided, disks fill; devices crash,
move and repeat themselves. The logs tell whether every event is delivered once, in order, to all that subscribed
before; and when all is quiet, the leaders have what the servers want.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.interest_set import MODES
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import Published
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.domain_scenario import FILTER_LEASE_S, QUIET_S, DomainScenario
from wanderbus.simulation.domains.interest_tables import check_tables
from wanderbus.simulation.domains.ordered_history import CALM_PAUSE_S, ChannelReader
from wanderbus.subscription import Since

ACTIVE_S: Final = 15.0
_WITH_READERS: Final = 5
"""One of so many worlds has readers of channels by number."""
_WITH_PAST: Final = 5
_PAST_WORLDS: Final = (1, 4)
"""Remainders by ``_WITH_PAST`` of the seeds of worlds in which subscriptions begin in the past."""
_RUSH_S: Final = 3.0
"""Time in which many events and subscriptions of one subject come, in such a world."""
_SUBJECTS: Final = ("Air", "Gate", "Rail", "Road", "Sea", "Tram")
_PARENTS: Final = {"Gate": "Air", "Stand": "Gate", "Tram": "Rail"}


class OrderedScenario(DomainScenario):
    """A world with an ordered domain, set up by the seed."""

    active_s = ACTIVE_S
    counted: ClassVar = DomainScenario.counted | {
        "held_back_apart": "of channels led elsewhere",
        "pasts": "subscriptions that began in the past",
        "pasts_elsewhere": "of them at another server than the leader",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self.subscriptions = self.suspensions = self.kicks = 0
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
        window, self.links.delay_s_max = draw.choice(
            [(1, 0.005), (1, 0.05), (3, 0.5), (256, 0.05), (256, 0.5), (256, 3.0)]
        )
        config = BrokerConfig(sweep_s=None, unacknowledged_max=window, publisher_filter_lease_s=FILTER_LEASE_S)
        self._is_filtering = seed % 3 == 0
        """True if all devices hold back events that nobody wants: in every third world."""
        self._has_past = self._begins_in_past(seed)
        for name in names:
            channels = self._channels(directory, name, names)
            own = self.engines.config(config, _SUBJECTS)
            self._add_node(self._make_node(name, channels, own))
        for number in range(draw.choice([1, 2, 4, 8]) + count // 4):
            self._add_user(f"sip:u{number}@sim.test", self._node())
        self.readers = [
            ChannelReader(self.world, self._node(), draw.choice([*_SUBJECTS, "Stand"]), number)
            for number in range(draw.choice([2, 4, 8]) if self._has_readers(seed) else 0)
        ]

    def _begins_in_past(self, seed: int) -> bool:
        """Return whether subscriptions begin in the past."""
        return seed % _WITH_PAST in _PAST_WORLDS

    def _has_readers(self, seed: int) -> bool:
        """Return whether there are readers of channels by number."""
        return seed % _WITH_READERS == 0

    def _channels(self, directory: Directory, name: str, names: Sequence[str]) -> OwnChannels:
        """Return the channels as the server ``name`` sees them."""
        return OwnChannels(directory, name, self._merging_of)

    def _make_node(self, name: str, channels: OwnChannels, config: BrokerConfig) -> DomainNode:
        return DomainNode(self.world, name, channels, config)

    def _merging_of(self, subject: str) -> Merging:
        return self._merging[self._top(subject)]

    def _add_user(self, user: str, node: DomainNode) -> None:
        draw = self.world.random
        for number in range(draw.choice([1, 1, 1, 2])):
            name, delay_s = f"d{number} of {user}", draw.choice([0.001, 0.02, 0.2])
            device = DomainDevice(self.world, node, user, name, delay_s, is_filtering=self._is_filtering)
            self.devices.append(device)

    def counts(self) -> dict[str, float]:
        return super().counts() | {
            "suspensions": self.suspensions,
            "kicks": self.kicks,
            "listed": sum(len(each.found) for each in self.readers),
            "refusals": sum(each.refusals for each in self.readers),
        }

    # Events of the world --------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        world, draw = self.world, self.world.random
        for action, most in (
            (self._subscribe, draw.choice([5, 20, 40])),
            (self._unsubscribe, draw.choice([0, 5, 20])),
            (self._renew, draw.choice([0, 3, 10])),
            (self._publish, draw.choice([10, 40, 100])),
        ):
            world.at_random(most, 0.0, ACTIVE_S, action)
        if self._has_past:
            world.at_random(draw.choice([1, 3, 6]), 0.0, ACTIVE_S - _RUSH_S, self._rush)
        disturbances = [self._crash, self._crash, self._break, self._break, self._partition, self._fill, self._lose]
        disturbances += [self._crash_device, self._move]
        chosen = draw.sample(disturbances, draw.randint(0, len(disturbances)))
        if draw.random() < (0.5 if self.engines.is_used else 0.2):
            chosen += [self._drop_log, self._partition]
        for _ in range(draw.choice([3, 10, 25]) if chosen else 0):
            world.at(draw.uniform(0.2, ACTIVE_S), draw.choice(chosen))
        if self._is_filtering:
            self._disturb_publishers()

    def _disturb_publishers(self) -> None:
        """Suspend and remove devices that hold back events, and let some publish a lot."""
        world, draw = self.world, self.world.random
        for _ in range(draw.choice([0, 3, 10])):
            self.suspensions += 1
            seconds = draw.choice([0.5, 3.0, FILTER_LEASE_S + 1.0, 20.0])
            world.at(draw.uniform(2.0, ACTIVE_S), partial(self._device().suspend, seconds))
        for _ in range(draw.choice([0, 10, 30])):
            world.at(draw.uniform(2.0, ACTIVE_S), partial(self._kick, self._device(), draw.choice([None, 0.01, 0.5])))
        for _ in range(draw.choice([0, 2, 4])):
            self._publish_often()

    def _publish_often(self) -> None:
        """Let one device publish all the time; subscriptions come and go, and servers suffer.

        An outbox has events of two subjects, whose leaders may both refuse one for now.
        """
        world, draw = self.world, self.world.random
        device, outbox = self._device(), draw.random() < 0.3
        subjects = [self._subject() for _ in range(1 + outbox)]
        for number in range(120):
            world.at(1.0 + number / 8, lambda: device.publish(self._event(draw.choice(subjects)), outbox=outbox))
        world.at_random(8, 2.0, ACTIVE_S, lambda: self._subscribe_for_a_while(draw.choice(subjects)))
        for _ in range(draw.choice([0, 2, 6])):
            world.at(draw.uniform(2.0, ACTIVE_S), draw.choice([self._break, self._partition, self._crash, self._fill]))

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

    def _kick(self, device: DomainDevice, crash_s: float | None) -> None:
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

    def _before_rest(self) -> None:
        for node in self.nodes.values():
            node.end_visits()
        for device in self.devices if self._has_past else ():
            device.read_all()  # a queue that one device does not read leaves no room for the past

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
            since = self._since(device.node, subject)
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
            since = self._since(device.node, subject)
            device.subscribe(subject, self._expression(), since if draw.random() < 0.7 else None)

        for action, most in ((publish, draw.choice([5, 20])), (subscribe, draw.choice([2, 6]))):
            world.at_random(most, world.now, world.now + _RUSH_S, action)

    def _leaders_of_past(self, node: DomainNode, subject: str) -> Collection[str]:
        """Return the servers that have the earlier events of a channel, none if these have no common order."""
        leaders = node.channels.leaders([subject])
        return leaders if len(leaders) == 1 else ()

    def _since(self, node: DomainNode, subject: str) -> Since | None:
        """Return a point in the past of a channel; None if there is none."""
        if not (leaders := self._leaders_of_past(node, subject)):
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

    def _publish(self) -> None:
        device, draw = self._device(), self.world.random
        outbox = draw.random() < 0.5
        for _ in range(draw.choice([1, 1, 1, 5, 20])):
            device.publish(self._event(self._subject()), outbox=outbox)

    def _may_crash(self, node: DomainNode) -> bool:
        return super()._may_crash(node) and self._spared.get(node.name, 0.0) <= self.world.now

    def _drop_log(self) -> None:
        """Lose old records of a log, often while the servers are divided."""
        draw = self.world.random
        if draw.random() < 0.5:
            self._partition()
        self.world.after(draw.choice([0.0, 0.5, 2.0]), self._node().drop_log)

    def _repair(self) -> None:
        super()._repair()
        for reader in self.readers:
            reader.pause_s = CALM_PAUSE_S

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
            subjects = reader.node.channels.below(reader.subject)
            self.problems += reader.check(self._accepted(subjects))

    def _accepted(self, subjects: Container[str]) -> Iterator[tuple[int, int]]:
        """Yield epoch and number of each event of the subjects."""
        for node in self.nodes.values():
            for offset, record in enumerate(node.disk.records()):
                if isinstance(record, Published) and record.event.subject in subjects:
                    yield 1, offset

    def _check_rest(self) -> None:
        self._check_readers()
        self._check_interest(is_empty=False)
        for device in self.devices:
            device.unsubscribe_all()
        self._wait()
        self._check_interest(is_empty=True)

    def _check_interest(self, *, is_empty: bool) -> None:
        events = [] if is_empty else [self._event(self._subject()) for _ in range(20)]
        self.problems += check_tables(self.nodes, events, is_empty=is_empty)
        super()._check_rest()
