"""Truth about a domain of servers: by all their logs, and by what the devices have published and received."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wanderbus.event import EventId
from wanderbus.simulation.device import PublishedEvent
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.past_checkers import FOREVER, check_past
from wanderbus.simulation.domains.server_truth import FollowedSubscription, ServerTruth

_REPEATED: Final = "this event was refused, or accepted too long ago"


class DomainTruth:
    """All logs, and what the devices know; it collects ``problems``.

    Each event is in one log, in the order of its publisher; it is with each subscription that counted before once, in
    order; and the devices have all that was recorded for them, or a gap.
    """

    def __init__(self, nodes: Mapping[str, DomainNode], devices: Sequence[DomainDevice]) -> None:
        self.problems: list[str] = []
        self._mixed = mixed = {name for name, node in nodes.items() if node.config.spark_subjects not in ((), ("*",))}
        self.servers = {name: ServerTruth(node, mixed) for name, node in nodes.items()}
        self.offered: dict[str, PublishedEvent] = {}
        self._devices = devices
        self._lineage = next(iter(nodes.values())).channels.lineage
        for device in devices:
            self.offered |= device.published
        for server in self.servers.values():
            self.problems += server.problems
        if all(node.is_fixed for node in nodes.values()):  # a repeat may reach another leader
            self.check_acceptance()
        self._check_held_back()
        for name, server in self.servers.items():
            self._check_arrivals(name, server)
            for identity, followed in server.followed.items():
                self._check_nothing_missed(server, identity, followed)
                self._check_received(identity, followed)
                self._check_past(name, followed)

    def counts(self) -> dict[str, float]:
        """Return the counters of what the logs have."""
        servers = self.servers.values()
        followed = [each for server in servers for each in server.followed.values()]
        pasts = [each.past for each in followed]
        return {
            "subscriptions": len(followed),
            "events": sum(len(each.published) for each in servers),
            "arrivals": sum(len(numbers) for each in servers for numbers in each.arrived.values()),
            "notifications": sum(len(each.notified) for each in followed),
            "gaps": sum(len(each.losses) for each in servers),
            "pasts": sum(each.first is not None for each in pasts),
            "pasts_elsewhere": sum(each.is_elsewhere for each in pasts),
            "pieces": sum(each.pieces for each in pasts),
            "seams": sum(each.seams for each in pasts),
        }

    def _check_past(self, name: str, followed: FollowedSubscription) -> None:
        """Check that a subscription that began in the past has each event from there on, once, in order."""
        if (first := followed.past.first) is None:
            return
        leader = self.servers[first.origin]
        wanted = self._wanted_since(first, followed)
        got = [followed.notified[number] for number in sorted(followed.notified)]
        what = f"{followed.subscription.id} of {name} since {first}"
        is_live = followed.lives[-1][1] == FOREVER
        # An engine for some subjects of a server delays their events behind others.
        is_ordered = not ({name, first.origin} & self._mixed)
        if not is_ordered:
            got.sort(key=self.place_of)
        if is_ordered or is_live:
            lives, has_gap = len(followed.lives), bool(followed.lost)
            self.problems += check_past(
                what,
                followed.past,
                got,
                wanted,
                place_of=self.place_of,
                lives=lives,
                is_live=is_live,
                has_gap=has_gap,
            )
        if followed.past.has_failed and not leader.node.storage.log_begins:
            self.problems.append(f"{what} has failed, although {first.origin} keeps its log")

    def _wanted_since(self, first: EventId, followed: FollowedSubscription) -> list[EventId]:
        """Return the events of a channel from a place on that a subscription matches, in their order."""
        published = self.servers[first.origin].published
        return [
            acceptance.id
            for number, (acceptance, event) in published.items()
            if number >= first.number and followed.matches(event, self._lineage(event.subject))
        ]

    def place_of(self, event: EventId) -> tuple[int, int]:
        """Return the place of an event in the order of its channel: the epoch, and the number."""
        return 1, event.number

    def era_of(self, event: EventId) -> int:
        """Return in which era an event was accepted: only in different ones may an event be accepted again."""
        return 0

    def check_acceptance(self, channel_of: Callable[[str], int] = lambda subject: 0) -> None:
        """Check that each event is in one log once, in the order of its stream, and that answers are true.

        Events of subjects for which ``channel_of`` differs may be accepted in another order.
        """
        accepted: dict[str, dict[int, EventId]] = {}
        for server in self.servers.values():
            last: dict[tuple[str, str, int | None, int, int], int] = {}
            for acceptance, event in server.published.values():
                uid = str(event["Uid"])
                offered = self.offered[uid]
                stream = acceptance.user, acceptance.device, acceptance.epoch
                if (stream, acceptance.number) != (offered.stream, offered.number):
                    self.problems.append(f"{uid} was accepted as number {acceptance.number} of {stream}")
                era = self.era_of(acceptance.id)
                if era in accepted.setdefault(uid, {}):
                    self.problems.append(f"{uid} was accepted as {accepted[uid][era]} and as {acceptance.id}")
                # The numbers of an outbox rise on in its next epoch.
                epoch = None if acceptance.outbox else acceptance.epoch
                order = (*stream[:2], epoch, channel_of(event.subject), era)
                if acceptance.number <= last.get(order, 0):
                    self.problems.append(f"{uid} was accepted after number {last[order]} of its stream")
                accepted[uid][era], last[order] = acceptance.id, acceptance.number
        for uid, offered in self.offered.items():
            ids = [*accepted.get(uid, {}).values()]
            if offered.accepted is not None and offered.accepted not in ids:
                self.problems.append(f"{uid} was answered with {offered.accepted}, it is {ids}")
            if offered.refused is not None and ids:
                self.problems.append(f"{uid} was refused, and is {ids}: {offered.refused}")
        for offered in (
            each for device in self._devices if not device.may_be_refused for each in device.published.values()
        ):
            # A repeat is refused for good if the first answer, a temporary refusal, was lost with the device's link.
            if offered.refused is not None and offered.limit is None and not offered.refused.startswith(_REPEATED):
                self.problems.append(f"{offered.uid} was refused: {offered.refused}")

    def _check_held_back(self) -> None:
        """Check that no subscription wants an event that a device held back: one that counted, and had not ended.

        A subscription whose past has failed is left out: its server has ended it at some time.
        """
        accepted = {str(event["Uid"]) for each in self.servers.values() for _, event in each.published.values()}
        for uid, offered in self.offered.items():
            if not offered.held_back or uid in accepted:
                continue
            for server in self.servers.values():
                lineage = self._lineage(offered.event.subject)
                for identity, followed in server.followed.items():
                    wants = followed.matches(offered.event, lineage) and not followed.past.has_failed
                    if wants and self._counted(identity, offered):
                        self.problems.append(f"{uid} was held back, and {identity} of {server.node.name} wants it")

    def _counted(self, identity: str, offered: PublishedEvent) -> bool:
        """Return whether a subscription counted before an event was published, until it was held back."""
        for asked in (each.asked[identity] for each in self._devices if identity in each.asked):
            for life, moment in asked.counted.items():
                if moment < offered.moment and asked.ending.get(life, offered.held_back) >= offered.held_back:
                    return True
        return False

    def _check_arrivals(self, name: str, server: ServerTruth) -> None:
        for leader, arrived in server.arrived.items():
            published = self.servers[leader].published
            for number in arrived:
                found = published.get(number)
                if found is None or found[1]["Uid"] != server.uids[leader, number]:
                    self.problems.append(f"{name} has event {number} of {leader}, which is not in the log there")

    def _check_nothing_missed(self, server: ServerTruth, identity: str, followed: FollowedSubscription) -> None:
        """Check that all events that were accepted after a subscription counted have arrived at its server.

        If the subscription has ended, only those before the last one of their subject must have.
        """
        for life, (start, end) in enumerate(followed.lives, 1):
            counted = [each.asked[identity].counted.get(life) for each in self._devices if identity in each.asked]
            moment = min((each for each in counted if each is not None), default=None)
            if moment is None or (end != FOREVER and not server.node.is_fixed):
                continue
            for origin, other in self.servers.items():
                if other is server:
                    continue
                arrived = server.arrived.get(origin, {})
                last: dict[str, int] = {}
                for number, at in arrived.items() if end != FOREVER else ():
                    if at < end and number in other.published:
                        last[other.published[number][1].subject] = number
                for number, (acceptance, event) in other.published.items():
                    is_due = other.node.moments[number] > moment and (
                        end == FOREVER or number < last.get(event.subject, 0)
                    )
                    if is_due and number not in arrived and followed.matches(event, self._lineage(event.subject)):
                        self._on_missed(server, acceptance.id, followed, start, end)

    def _on_missed(
        self, server: ServerTruth, event: EventId, followed: FollowedSubscription, start: int, end: int
    ) -> None:
        """Accept that an event is missed if a bound of its leader bit, and the subscription has a gap or its end."""
        lost = any(start < at < end for at in server.losses.get(event.origin, ()))
        is_told = lost and (followed.lost or followed.past.has_failed)
        if event.number >= self.servers[event.origin].node.storage.log_begins or not is_told:
            self.problems.append(f"{followed.subscription.id} of {server.node.name} has missed {event}")

    def _check_received(self, identity: str, followed: FollowedSubscription) -> None:
        """Check that devices have received what their server has recorded, in order, or a gap."""
        owner, received, gap = followed.subscription.owner, set[int](), 0
        for device in self._devices:
            if device.user != owner:
                continue
            items = device.received(identity)
            if list(items) != sorted(items):
                self.problems.append(f"{device.name} has received {identity} out of order")
            for number, item in items.items():
                if item.id is None:
                    gap = max(gap, number)
                elif followed.notified.get(number) != item.id:
                    self.problems.append(f"{device.name} has received {item.id} for {identity}, which is not recorded")
                else:
                    received.add(number)
        if missing := sorted(followed.notified.keys() - received):
            self.problems.append(f"{identity} of {owner} never received {missing}")
        if silent := sorted(each for each in followed.lost if each > gap):
            self.problems.append(f"{identity} of {owner} has no gap for {silent}")
        unexpected = gap and not followed.lost
        if unexpected:
            self.problems.append(f"{identity} of {owner} has a gap without a loss")
