"""Truth about channel groups that move between leaders: by all logs together, one order for each subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wanderbus.event import EventId
from wanderbus.records import GroupMoved, GroupStays, OfGroups, Published
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.domain_truth import DomainTruth
from wanderbus.simulation.domains.server_truth import ServerTruth


class GroupTruth:
    """All logs; it collects ``problems``.

    An epoch of a group has one leader, which alone accepts its events. Every log has the events of a subject in the
    order of the epochs, and in each of them in that of the leader's log.
    """

    def __init__(self, nodes: Mapping[str, DomainNode], truth: DomainTruth) -> None:
        self.problems: list[str] = []
        self._nodes = nodes
        self._servers = truth.servers
        self._groups = next(iter(nodes.values())).channels.directory.groups
        self._epochs: dict[EventId, int] = {}
        """Epoch of the group's leader in which each event was accepted."""
        leader_of: dict[tuple[int, int], str] = {}
        self.moves = self.stays = 0
        for name, node in nodes.items():
            epochs: dict[int, int] = {}
            for offset, record in enumerate(node.disk.records()):
                if isinstance(record, OfGroups):
                    self._follow(name, record, leader_of)
                if isinstance(record, GroupMoved):
                    epochs[record.group] = record.epoch
                elif isinstance(record, Published):
                    group = self._groups.group_of(record.event.subject)
                    epoch = self._epochs[record.acceptance.id] = epochs.get(group, 1)
                    self._check_leader(name, offset, group, epoch, leader_of)
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
            place = self._epochs[acceptance.id], number
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
