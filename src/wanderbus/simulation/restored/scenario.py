"""Simulated domain of which one server is restored from an earlier copy of its disk (decision 0108).

The copy is taken while the server runs. Devices live on with what they know, so that every acknowledged event arrives
at each subscription that was confirmed before, or a gap follows it; once all is quiet, everything arrives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, Literal

from wanderbus import filters
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.disk import DiskCopy
from wanderbus.simulation.domains.domain_links import DomainLink, RequestedLinks
from wanderbus.simulation.domains.ordered_device import Published
from wanderbus.simulation.domains.ordered_node import OrderedNode
from wanderbus.simulation.restored.device import Item, RestoreDevice
from wanderbus.simulation.scenario import Scenario

Model = Literal["ordered", "decentralised", "both"]

ACTIVE_S: Final = 12.0
QUIET_S: Final = 120.0
"""Time until every link is open again, and everything was repeated."""
_SUBJECTS: Final = ("Air", "Rail", "Road", "Sea")
_ORDERED_OF_BOTH: Final = ("Air", "Rail")


class RestoredNode(OrderedNode):
    """A server that may close links: its order of messages with the others begins again after a rollback."""

    def _may_close(self, link: DomainLink) -> bool:
        return True


class RestoreScenario(Scenario):
    """A world with a domain of one to four servers, set up by the seed."""

    counted: ClassVar = {
        "servers": "servers",
        "events": "acknowledged events",
        "due": "due to subscriptions",
        "in_gaps": "of them in gaps",
        "restores": "servers restored from a copy",
        "noticed": "times noticed",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self.due = self.in_gaps = 0
        """Pairs of an acknowledged event and a subscription that is due it, and those that a gap stands for."""
        self.restores = self._moment = self._events = self._subscriptions = 0
        names = [f"s{number}" for number in range(1, draw.choice([1, 2, 2, 3, 4]) + 1)]
        self.model: Model = draw.choice(["ordered", "decentralised", "both"]) if len(names) > 1 else "ordered"
        key = draw.randbytes(16)
        directory = Directory(ChannelGroups(key, 8), first_table(8, names, key))
        merging = Merging("none", 0.9)
        window = draw.choice([1, 16, 256])
        config = BrokerConfig(sweep_s=None, unacknowledged_max=window)
        self.nodes: dict[str, RestoredNode] = {}
        self.links = RequestedLinks(self.world, self.nodes, draw.choice([0.005, 0.05, 0.3]))
        for name in names:
            decentralised = None
            if self.model != "ordered":
                decentralised = DecentralisedChannels(
                    directory, name, names, self._is_decentralised, lambda subject: merging, (merging,)
                )
            others = [each for each in names if each != name]
            channels = OwnChannels(
                directory, name, lambda subject: merging, decentralised, others, b"layout" if others else b""
            )
            node = self.nodes[name] = RestoredNode(self.world, name, channels, config)
            node.links = self.links
        for node in self.nodes.values():
            node.start()
        self.devices: list[RestoreDevice] = []
        for number in range(len(names) + draw.choice([1, 2, 3])):
            user, node = f"sip:u{number}@sim.test", draw.choice(list(self.nodes.values()))
            for place in range(draw.choice([1, 1, 2])):
                delay_s = draw.choice([0.001, 0.02, 0.2])
                name = f"d{place} of {user}"
                self.devices.append(RestoreDevice(self.world, node, user, name, delay_s, self._next_moment))

    def _is_decentralised(self, subject: str) -> bool:
        return self.model == "decentralised" or (self.model == "both" and subject not in _ORDERED_OF_BOTH)

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment

    def _check_promises(self) -> None:
        self.due, self.in_gaps = self._check()
        for node in self.nodes.values():
            self.problems += [*node.problems, *node.check_rows()]

    def counts(self) -> dict[str, float]:
        return {
            "servers": len(self.nodes),
            "events": sum(each.accepted is not None for device in self.devices for each in device.published.values()),
            "due": self.due,
            "in_gaps": self.in_gaps,
            "restores": self.restores,
            "noticed": sum(len(node.rollbacks) for node in self.nodes.values()),
        }

    # Events of the world --------------------------------------------------------------------------------------------

    def _play(self) -> None:
        world, draw = self.world, self.world.random
        for _ in range(draw.choice([4, 12, 24])):
            world.at(draw.uniform(0.5, ACTIVE_S), self._subscribe)
        for _ in range(draw.choice([20, 60, 120])):
            world.at(draw.uniform(1.0, ACTIVE_S), self._publish)
        restored = draw.choice(list(self.nodes.values()))
        for _ in range(draw.choice([1, 1, 2, 3])):
            world.at(draw.uniform(1.0, ACTIVE_S - 2.0), lambda: self._copy(restored))
        for _ in range(draw.choice([0, 0, 2])):
            world.at(draw.uniform(1.0, ACTIVE_S), draw.choice([self._break, self._crash, self._lose]))
        world.run(ACTIVE_S + QUIET_S)
        self._repair()
        self._quiet = self._next_moment()
        for device in self.devices:
            for subject in _SUBJECTS:
                device.publish(self._event(subject), outbox=draw.random() < 0.5)
        world.run(world.now + QUIET_S)

    def _repair(self) -> None:
        for node in self.nodes.values():
            if not node.alive:
                node.start()
        for device in self.devices:
            device.reconnect()
        self.world.run(self.world.now + QUIET_S)

    def _copy(self, node: RestoredNode) -> None:
        """Copy the disk of a server, and replace it by the copy some time later."""
        copy, restores = node.disk.copy(), self.restores
        if node.alive:
            after_s = self.world.random.choice([0.05, 0.5, 2.0, 6.0])
            self.world.after(after_s, lambda: self._restore(node, copy, restores))

    def _restore(self, node: RestoredNode, copy: DiskCopy, restores: int) -> None:
        """Replace the disk, unless that was done since: a later copy of a history that was given up is no backup."""
        draw = self.world.random
        if not node.alive or restores != self.restores:
            return
        self.restores += 1
        node.restore(copy, lose_rows=draw.random() < 0.3)
        self._down(node)

    def _crash(self) -> None:
        node = self.world.random.choice(list(self.nodes.values()))
        if node.alive:
            node.crash(lose_rows=self.world.random.random() < 0.3)
            self._down(node)

    def _down(self, node: RestoredNode) -> None:
        for device in self.devices:
            if device.node is node:
                device.server_crashed()
        self.world.after(self.world.random.choice([0.01, 0.5, 3.0]), node.start)

    def _break(self) -> None:
        self.links.break_some()

    def _lose(self) -> None:
        self.world.random.choice(self.devices).lose()

    def _subscribe(self) -> None:
        draw = self.world.random
        self._subscriptions += 1
        expression = draw.choice(["everything", "x < 8", "x >= 2"]) + " " * self._subscriptions
        draw.choice(self.devices).subscribe(draw.choice([*_SUBJECTS, "*"]), expression)

    def _publish(self) -> None:
        draw = self.world.random
        device, subject, outbox = draw.choice(self.devices), draw.choice(_SUBJECTS), draw.random() < 0.5
        for _ in range(draw.choice([1, 1, 3])):
            device.publish(self._event(subject), outbox=outbox)

    def _event(self, subject: str) -> Event:
        self._events += 1
        return Event(subject, {"x": self.world.random.randrange(10), "Uid": f"e{self._events}"})

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check(self) -> tuple[int, int]:
        """Compare what was acknowledged with what subscriptions received; return what was due, and what is in gaps."""
        due = in_gaps = 0
        published = [each for device in self.devices for each in device.published.values() if each.accepted is not None]
        device_of = {each.uid: device for device in self.devices for each in device.published.values()}
        ids = [each.accepted for each in published]
        if len(set(ids)) < len(ids):
            self.problems.append("two events have the same id")
        for device in self.devices:
            if not device.is_settled:
                self.problems.append(f"{device.user}/{device.name} waits for answers")
            self.problems += [*device.problems, *_repeated(device)]
            for identity, asked in device.asked.items():
                if 1 not in asked.counted:
                    continue
                items = device.items.get(device.first_of(identity), [])
                places = _places(items)
                wanted = device.wanted[identity]
                matches = filters.parse(wanted.expression).matches
                for each in published:
                    if each.moment < asked.counted[1] or wanted.subject not in ("*", each.event.subject):
                        continue
                    if not matches(each.event):
                        continue
                    due += 1
                    if each.uid in places:
                        continue
                    in_gaps += 1
                    begin = _place_before(each, device_of[each.uid], places)
                    if each.moment > self._quiet or all(gap.moment < each.moment for gap in items[begin:]):
                        who = f"{device.user}/{device.name}, {identity}"
                        self.problems.append(f"{each.uid}, acknowledged as {each.accepted}, vanished for {who}")
        return due, in_gaps


def _places(items: list[Item]) -> dict[str, int]:
    """Return the place of each event behind which its successor may be: its first one."""
    places: dict[str, int] = {}
    for place, item in enumerate(items, 1):
        if item.id is not None:
            places.setdefault(item.uid, place)
    return places


def _place_before(event: Published, device: RestoreDevice, places: Mapping[str, int]) -> int:
    """Return the place behind which a gap must stand for ``event``, which its publisher ``device`` sent in order.

    It is that of the last event before it, of one stream and channel, that came before all later ones.
    """
    kind = event.stream, event.event.subject
    channel = [each for each in device.published.values() if (each.stream, each.event.subject) == kind]
    at = next(place for place, each in enumerate(channel) if each.uid == event.uid)
    end = min((places[each.uid] for each in channel[at + 1 :] if each.uid in places), default=math.inf)
    earlier = (places[each.uid] for each in channel[:at] if each.uid in places)
    return max((place for place in earlier if place < end), default=0)


def _repeated(device: RestoreDevice) -> Iterator[str]:
    """Yield the events that a subscription received twice under one id."""
    for identity, items in device.items.items():
        ids = [each.id for each in items if each.id is not None]
        for each in {one for one in ids if ids.count(one) > 1}:
            yield f"{each} came twice to {identity} of {device.user}/{device.name}"
