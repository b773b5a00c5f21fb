"""Truth about channel groups that move between leaders: by all logs together, one order for each subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from wanderbus.broker.history.seams import HISTORY_LOST
from wanderbus.event import EventId
from wanderbus.records import ArrivalsLost, GroupMoved, GroupStays, OfGroups, Published
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.domain_truth import DomainTruth
from wanderbus.simulation.domains.server_truth import FollowedSubscription, ServerTruth
from wanderbus.subscription import EVERY_SUBJECT, Since


class Accepted(NamedTuple):
    """An event in the log of a leader, with its channel group and the epoch."""

    offset: int
    at_us: int
    record: Published
    group: int
    epoch: int


def accepted_by(node: DomainNode) -> Iterator[Accepted]:
    """Yield the events that a server has accepted, and the epochs in which it did."""
    group_of, epochs = node.channels.directory.groups.group_of, dict[int, int]()
    for offset, record in enumerate(node.disk.records()):
        if isinstance(record, GroupMoved):
            epochs[record.group] = record.epoch
        elif isinstance(record, Published):
            group = group_of(record.event.subject)
            yield Accepted(offset, record.at_us, record, group, epochs.get(group, 1))


class GroupTruth:
    """All logs; it collects ``problems``.

    An epoch of a group has one leader, which alone accepts its events. Every log has the events of a subject in the
    order of the epochs, and in each of them in that of the leader's log.
    """

    def __init__(self, nodes: Mapping[str, DomainNode], truth: MovedTruth) -> None:
        self.problems: list[str] = []
        self._nodes = nodes
        self._servers = truth.servers
        self._place_of = truth.place_of
        leader_of: dict[tuple[int, int], str] = {}
        self.moves = self.stays = 0
        for name, node in nodes.items():
            for record in node.disk.records():
                if isinstance(record, OfGroups):
                    self._follow(name, record, leader_of)
            for each in truth.accepted[name]:
                self._check_leader(name, each.offset, each.group, each.epoch, leader_of)
        for name, server in truth.servers.items():
            self.problems += self._check_order(name, server)
        self._check_agreement()

    def _follow(self, name: str, record: OfGroups, leader_of: dict[tuple[int, int], str]) -> None:
        if isinstance(record, GroupStays):
            self.stays += 1
        elif isinstance(record, GroupMoved):
            self.moves += record.server == name
            leader = leader_of.setdefault((record.group, record.epoch), record.server)
            if leader != record.server:
                self.problems.append(f"epoch {record.epoch} of group {record.group} has {leader} and {record.server}")

    def _check_leader(
        self, name: str, offset: int, group: int, epoch: int, leader_of: Mapping[tuple[int, int], str]
    ) -> None:
        leader = leader_of.get((group, epoch)) or self._nodes[name].channels.file_leader(group)
        if leader != name:
            self.problems.append(
                f"{name} accepted its record {offset} in epoch {epoch} of group {group}: {leader} leads"
            )

    def _check_order(self, name: str, server: ServerTruth) -> Iterator[str]:
        """Yield arrivals that come after later events of their subject."""
        last: dict[str, tuple[int, int]] = {}
        found = [(at, origin, number) for origin, each in server.arrived.items() for number, at in each.items()]
        found += [(at, name, at) for at in server.published]
        for at, origin, number in sorted(found):
            acceptance, event = self._servers[origin].published[number]
            place = self._place_of(acceptance.id)
            if place < last.get(event.subject, (0, 0)):
                yield f"{name} has {acceptance.id} at {at} after a later event of {event.subject}"
            last[event.subject] = place

    def _check_agreement(self) -> None:
        """Check that all servers know the same leaders, and that nothing moves any more."""
        tables = {name: node.channels.directory.table.leaders for name, node in self._nodes.items()}
        if len(set(tables.values())) > 1:
            self.problems.append(f"the servers know different leaders: {tables}")
        for name, node in self._nodes.items():
            if moving := [group for group, row in node.broker.state.groups.items() if row.target]:
                self.problems.append(f"{name} still prepares moves of {moving}")


class Replacement(NamedTuple):
    """A record in the log of a server: in ``epoch`` another server leads the ``group`` than the one that was gone."""

    offset: int
    group: int
    epoch: int
    is_former: bool
    """True in the log of the server that was gone."""
    with_gap: frozenset[str]
    """Subscriptions that have a gap for it."""


class MovedTruth(DomainTruth):
    """All logs of a domain whose channel groups move: the place of an event is its epoch, and its number there."""

    def __init__(self, nodes: Mapping[str, DomainNode], devices: Sequence[DomainDevice]) -> None:
        self._group_of = next(iter(nodes.values())).channels.directory.groups.group_of
        self.accepted = {name: list(accepted_by(node)) for name, node in nodes.items()}
        """Events in the log of each server."""
        self._accepted = {each.record.acceptance.id: each for several in self.accepted.values() for each in several}
        super().__init__(nodes, devices)

    def place_of(self, event: EventId) -> tuple[int, int]:
        return self._accepted[event].epoch, event.number

    def _wanted_since(self, first: EventId, followed: FollowedSubscription) -> list[EventId]:
        subscription, begin = followed.subscription, (followed.past.leader_epoch, first.number)
        since = subscription.since or Since()
        if since.event is not None and self._accepted[since.event].group == self._group_of(subscription.subject):
            epoch, number = self.place_of(since.event)
            if begin != (epoch, number + 1):
                self.problems.append(f"{subscription.id} begins at {begin}, not behind {epoch}, {number}")
        reasons = [each for each in followed.lost.values() if each == HISTORY_LOST]
        if reasons and not any(server.node.storage.log_begins for server in self.servers.values()):
            self.problems.append(f"{subscription.id} has a gap, although each leader has its log")
        return sorted(
            (
                identity
                for identity, (_, at_us, record, _, _) in self._accepted.items()
                if self.place_of(identity) >= begin and at_us >= (since.at_us or 0)
                if followed.matches(record.event, self._lineage(record.event.subject))
            ),
            key=self.place_of,
        )


class ForcedTruth(MovedTruth):
    """All logs of a domain in which leaders are replaced.

    The *era* of an event is the number of such replacements in its channel group before it was accepted. An event whose
    publish had no answer may be accepted once in each of several eras. Events may be missing behind a gap.
    """

    def __init__(self, nodes: Mapping[str, DomainNode], devices: Sequence[DomainDevice]) -> None:
        self.replacements = {name: self._follow(node) for name, node in nodes.items()}
        super().__init__(nodes, devices)
        for server in self.servers.values():
            for each in self.replacements[server.node.name]:
                self._check_place(server, each)

    def _check_place(self, server: ServerTruth, replaced: Replacement) -> None:
        """Check that every subscription of the group has the gap, and that events of the next leader are behind it."""
        name = server.node.name
        concerned = {
            identity
            for identity, each in server.followed.items()
            if each.subscription.subject == EVERY_SUBJECT or self._group_of(each.subscription.subject) == replaced.group
            if any(start < replaced.offset < end for start, end in each.lives)
            and each.past.behind_until < replaced.offset
        }
        if missing := sorted(concerned - replaced.with_gap):
            self.problems.append(f"{name} has no gap for {missing} at {replaced.offset}")
        for origin, arrived in server.arrived.items():
            for number, offset in arrived.items():
                group, epoch = self._group_and_epoch(self.servers[origin].published[number][0].id)
                if group == replaced.group and (epoch < replaced.epoch) != (offset < replaced.offset):
                    self.problems.append(f"{name} has {number} of {origin} on the wrong side of its gap")

    def _follow(self, node: DomainNode) -> list[Replacement]:
        """Return the replacements in the log of a server."""
        found, with_gap = list[Replacement](), frozenset[str]()
        for offset, record in enumerate(node.disk.records()):
            if isinstance(record, GroupMoved) and record.forced:
                is_former = record.former == node.name
                found.append(Replacement(offset, record.group, record.epoch, is_former, with_gap))
            lost = record.notified if isinstance(record, ArrivalsLost) else ()
            with_gap = frozenset(identity for each in lost for identity in each.subscriptions)
        return found

    def _group_and_epoch(self, event: EventId) -> tuple[int, int]:
        accepted = self._accepted[event]
        return accepted.group, accepted.epoch

    def era_of(self, event: EventId) -> int:
        """Return how many leaders of its group were replaced before an event was accepted."""
        group, epoch = self._group_and_epoch(event)
        forced = {each.epoch for several in self.replacements.values() for each in several if each.group == group}
        return sum(each <= epoch for each in forced)

    def _on_missed(
        self, server: ServerTruth, event: EventId, followed: FollowedSubscription, start: int, end: int
    ) -> None:
        """Accept that an event is missed if its place is that of a gap."""
        replacements = self.replacements[server.node.name]
        if not any(self._explains(each, server, event, followed, start, end) for each in replacements):
            super()._on_missed(server, event, followed, start, end)

    def _explains(
        self,
        replaced: Replacement,
        server: ServerTruth,
        event: EventId,
        followed: FollowedSubscription,
        start: int,
        end: int,
    ) -> bool:
        """Return whether an event is missed because of a replacement.

        Either it is one of the former leader, and nothing has come that this has accepted later; or it is one of the
        next leader, the subscription is at the former one, and nothing has come that was accepted earlier.
        """
        group, epoch = self._group_and_epoch(event)
        if group != replaced.group or end < replaced.offset:
            return False
        is_behind = followed.past.behind_until > replaced.offset
        has_gap = followed.subscription.id in replaced.with_gap or is_behind
        published, lineage = self.servers[event.origin].published, server.node.channels.lineage
        # An engine for some subjects of a leader delays their events behind others.
        subject = published[event.number][1].subject if event.origin in self._mixed else None
        arrived = [
            number
            for number in server.arrived.get(event.origin, {})
            if self._group_and_epoch(published[number][0].id) == (group, epoch)
            if subject in (None, published[number][1].subject)
        ]
        if epoch < replaced.epoch:
            return (has_gap or start > replaced.offset) and max(arrived, default=0) < event.number
        matching = [
            number
            for number in arrived
            if followed.matches(published[number][1], lineage(published[number][1].subject))
        ]
        return replaced.is_former and has_gap and event.number < min(matching, default=event.number + 1)
