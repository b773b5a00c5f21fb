"""Simulated domain of which one server is restored from an earlier copy of its disk (decision 0108).

The copy is taken while the server runs. Devices live on with what they know, so that every acknowledged event arrives
at each subscription that was confirmed before, or a gap follows it; once all is quiet, everything arrives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, Literal

from wanderbus import filters
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.device import PublishedEvent
from wanderbus.simulation.disk import DiskCopy
from wanderbus.simulation.domains.domain_device import DomainDevice, Item
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.domain_scenario import SOON_S, DomainScenario

Model = Literal["ordered", "decentralised", "both"]

ACTIVE_S: Final = 12.0
QUIET_S: Final = 120.0
"""Time until every link is open again, and everything was repeated."""
_SUBJECTS: Final = ("Air", "Rail", "Road", "Sea")
_ORDERED_OF_BOTH: Final = ("Air", "Rail")


class RestoreScenario(DomainScenario):
    """A world with a domain of one to four servers, set up by the seed."""

    active_s = ACTIVE_S
    away_s = (0.01, 0.5, 3.0)
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
        self.restores = self._subscriptions = 0
        names = [f"s{number}" for number in range(1, draw.choice([1, 2, 2, 3, 4]) + 1)]
        self.model: Model = draw.choice(["ordered", "decentralised", "both"]) if len(names) > 1 else "ordered"
        key = draw.randbytes(16)
        directory = Directory(ChannelGroups(key, 8), first_table(8, names, key))
        merging = Merging("none", 0.9)
        config = BrokerConfig(sweep_s=None, unacknowledged_max=draw.choice([1, 16, 256]))
        self.links.delay_s_max = draw.choice([0.005, 0.05, 0.3])
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
            node = DomainNode(self.world, name, channels, config)
            # Its order of messages with the others begins again after a rollback.
            node.may_close = lambda link: True
            self._add_node(node)
        for number in range(len(names) + draw.choice([1, 2, 3])):
            user, node = f"sip:u{number}@sim.test", self._node()
            for place in range(draw.choice([1, 1, 2])):
                name, delay_s = f"d{place} of {user}", draw.choice([0.001, 0.02, 0.2])
                device = DomainDevice(self.world, node, user, name, delay_s, resubmits=True)
                device.notice_s = device.retry_s = draw.choice([device.notice_s, SOON_S])
                self.devices.append(device)

    def _is_decentralised(self, subject: str) -> bool:
        return self.model == "decentralised" or (self.model == "both" and subject not in _ORDERED_OF_BOTH)

    def counts(self) -> dict[str, float]:
        return super().counts() | {
            "events": len(self._accepted()),
            "due": self.due,
            "in_gaps": self.in_gaps,
            "restores": self.restores,
            "noticed": sum(len(node.rollbacks) for node in self.nodes.values()),
        }

    # Events of the world --------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        world, draw = self.world, self.world.random
        world.at_random(draw.choice([4, 12, 24]), 0.5, ACTIVE_S, self._subscribe)
        world.at_random(draw.choice([20, 60, 120]), 1.0, ACTIVE_S, self._publish)
        world.at_random(draw.choice([1, 1, 2, 3]), 1.0, ACTIVE_S - 2.0, partial(self._copy, self._node()))
        for _ in range(draw.choice([0, 0, 2])):
            world.at(draw.uniform(1.0, ACTIVE_S), draw.choice([self._break, self._crash, self._lose]))

    def _wait(self) -> None:
        """Let everything come to rest; then publish once more, and let that arrive."""
        self.world.run(self.world.now + QUIET_S)
        for device in self.devices:
            device.move()
        self.world.run(self.world.now + QUIET_S)
        self._quiet = self.world.moment()
        for device in self.devices:
            for subject in _SUBJECTS:
                device.publish(self._event(subject), outbox=self.world.random.random() < 0.5)
        self.world.run(self.world.now + QUIET_S)

    def _copy(self, node: DomainNode) -> None:
        """Copy the disk of a server, and replace it by the copy some time later."""
        copy, restores = node.disk.copy(), self.restores
        if node.alive:
            after_s = self.world.random.choice([0.05, 0.5, 2.0, 6.0])
            self.world.after(after_s, lambda: self._restore(node, copy, restores))

    def _restore(self, node: DomainNode, copy: DiskCopy, restores: int) -> None:
        """Replace the disk, unless that was done since: a later copy of a history that was given up is no backup."""
        draw = self.world.random
        if node.alive and restores == self.restores:
            self.restores += 1
            node.restore(copy, lose_rows=draw.random() < 0.3)
            self.world.after(draw.choice(self.away_s), lambda: self._restart(node))

    def _subscribe(self) -> None:
        draw = self.world.random
        self._subscriptions += 1
        expression = draw.choice(["everything", "x < 8", "x >= 2"]) + " " * self._subscriptions
        self._device().subscribe(draw.choice([*_SUBJECTS, "*"]), expression)

    def _publish(self) -> None:
        draw = self.world.random
        device, subject, outbox = self._device(), draw.choice(_SUBJECTS), draw.random() < 0.5
        for _ in range(draw.choice([1, 1, 3])):
            device.publish(self._event(subject), outbox=outbox)

    # Checks ---------------------------------------------------------------------------------------------------------

    def _accepted(self) -> list[PublishedEvent]:
        published = [each for device in self.devices for each in device.published.values()]
        return [each for each in published if each.accepted is not None]

    def _check_promises(self) -> None:
        """Check by what the devices know alone: a log that was replaced does not have everything."""
        for node in self.nodes.values():
            self.problems += [*node.problems, *node.check_rows()]
        published = self._accepted()
        if len({each.accepted for each in published}) < len(published):
            self.problems.append("two events have the same id")
        for device in self.devices:
            self.problems += [*device.check(), *_repeated(device)]
            for identity, asked in device.asked.items():
                if 1 in asked.counted:
                    items = device.items.get(device.first_of(identity), [])
                    wanted = asked.subscription
                    matches = filters.parse(wanted.expression).matches
                    due = [each for each in published if each.moment >= asked.counted[1]]
                    due = [each for each in due if wanted.subject in ("*", each.event.subject) and matches(each.event)]
                    self._check_due(f"{device.user}/{device.name}, {identity}", due, items)

    def _check_due(self, who: str, due: Sequence[PublishedEvent], items: Sequence[Item]) -> None:
        """Check that each event that a subscription is due is among its ``items``, or in a gap."""
        places = _places(items)
        device_of = {each.uid: device for device in self.devices for each in device.published.values()}
        self.due += len(due)
        for each in [one for one in due if one.uid not in places]:
            self.in_gaps += 1
            begin = _place_before(each, device_of[each.uid], places)
            gaps = [item.moment for item in items[begin:] if item.id is None]
            if each.moment > self._quiet or all(moment < each.moment for moment in gaps):
                self.problems.append(f"{each.uid}, acknowledged as {each.accepted}, vanished for {who}")


def _places(items: Sequence[Item]) -> dict[str, int]:
    """Return the place of each event behind which its successor may be: its first one."""
    places: dict[str, int] = {}
    for place, item in enumerate(items, 1):
        if item.id is not None:
            places.setdefault(item.text, place)
    return places


def _place_before(event: PublishedEvent, device: DomainDevice, places: Mapping[str, int]) -> int:
    """Return the place behind which a gap must stand for ``event``, which its publisher ``device`` sent in order.

    It is that of the last event before it, of one stream and channel, that came before all later ones.
    """
    kind = event.stream, event.event.subject
    channel = [each for each in device.published.values() if (each.stream, each.event.subject) == kind]
    at = next(place for place, each in enumerate(channel) if each.uid == event.uid)
    end = min((places[each.uid] for each in channel[at + 1 :] if each.uid in places), default=math.inf)
    earlier = (places[each.uid] for each in channel[:at] if each.uid in places)
    return max((place for place in earlier if place < end), default=0)


def _repeated(device: DomainDevice) -> Iterator[str]:
    """Yield the events that a subscription received twice under one id."""
    for identity, items in device.items.items():
        ids = [each.id for each in items if each.id is not None]
        for each in {one for one in ids if ids.count(one) > 1}:
            yield f"{each} came twice to {identity} of {device.user}/{device.name}"
