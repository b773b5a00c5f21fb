"""Directory of a domain: the resolution server that leads each channel group, under which epoch (SPEC J-07, J-08)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from wanderbus.channels.groups import ChannelGroups
from wanderbus.errors import ConfigurationError, Refused


class Leader(msgspec.Struct, frozen=True, array_like=True):
    """Leader of a channel group: the name of a resolution server, and the epoch of its leadership, from 1 on."""

    server: str
    epoch: int


class LeaderTable(msgspec.Struct, frozen=True, array_like=True):
    """The resolution servers, sorted, and the leader of each channel group; every change is the next ``version``.

    The epoch of a group rises with each change of its leader. No epoch has two leaders, as long as the directory makes
    each table durable before it announces it.
    """

    version: int
    servers: tuple[str, ...]
    leaders: tuple[Leader, ...]

    def relocated(self, group: int, server: str, *, epoch: int) -> LeaderTable:
        """Return the table in which ``server`` leads ``group``, if the present epoch is ``epoch`` (compare and set).

        :raises Refused: the group has another epoch by now; or there is no such group or server; or the server leads
            the group already
        """
        if not 0 <= group < len(self.leaders):
            raise Refused(f"there is no channel group {group} (expected 0 to {len(self.leaders) - 1})")
        if server not in self.servers:
            raise Refused(f"there is no resolution server {server!r} (expected {' or '.join(self.servers)})")
        present = self.leaders[group]
        if present.epoch != epoch:
            raise Refused(f"channel group {group} has epoch {present.epoch} by now, not {epoch}; look it up again")
        if present.server == server:
            raise Refused(f"channel group {group} is led by {server} already")
        return self._changed({group: server}, self.servers)

    def with_leaders(self, moved: Mapping[int, Leader]) -> LeaderTable:
        """Return the table in which each of the groups that have ``moved`` has another leader."""
        leaders = list(self.leaders)
        for group, leader in moved.items():
            leaders[group] = leader
        changes = sum(leader.epoch - self.leaders[group].epoch for group, leader in moved.items())
        return LeaderTable(self.version + changes, self.servers, tuple(leaders))

    def reassigned(self, servers: Iterable[str], key: bytes) -> LeaderTable:
        """Return the table for these resolution servers; the same table if they are the present ones.

        Only the groups of servers that have left move, and those that rendezvous hashing gives to a new server. Other
        groups stay, also where they have been relocated to.

        :raises ConfigurationError: ``servers`` is empty
        """
        present = _sorted(servers)
        joined = set(present) - set(self.servers)
        moves = {}
        for group, leader in enumerate(self.leaders):
            preferred = preferred_server(group, present, key)
            if preferred in joined or leader.server not in present:
                moves[group] = preferred
        return self if present == self.servers else self._changed(moves, present)

    def adopted(self, offered: LeaderTable) -> LeaderTable:
        """Return the newer of this table, as a server knows it, and the ``offered`` one, which may be late or repeated.

        :raises Refused: ``offered`` claims to be newer, and has a lower epoch or a second leader for an epoch, as after
            a directory has lost its table
        """
        if len(self.leaders) != len(offered.leaders):
            raise Refused(f"the table of leaders has {len(offered.leaders)} channel groups, not {len(self.leaders)}")
        if offered.version < self.version:
            return self
        for group, (known, other) in enumerate(zip(self.leaders, offered.leaders, strict=True)):
            if other.epoch < known.epoch or (other.epoch == known.epoch and other.server != known.server):
                raise Refused(
                    f"channel group {group} is led by {known.server} under epoch {known.epoch}, and version"
                    f" {offered.version} of the table says {other.server}, {other.epoch}; restore the directory"
                )
        return offered

    def accepts(self, group: int, epoch: int) -> bool:
        """Return whether a message of a leader of ``group`` may be accepted: not if its epoch has passed."""
        return epoch >= self.leaders[group].epoch

    def groups_of(self, server: str) -> tuple[int, ...]:
        """Return the channel groups that ``server`` leads."""
        return tuple(group for group, leader in enumerate(self.leaders) if leader.server == server)

    def _changed(self, moves: dict[int, str], servers: tuple[str, ...]) -> LeaderTable:
        leaders = list(self.leaders)
        for group, server in moves.items():
            leaders[group] = Leader(server, leaders[group].epoch + 1)
        return LeaderTable(self.version + 1, servers, tuple(leaders))


class ChannelPlace(NamedTuple):
    """Channel group of a subject, with its leader and the leader's epoch."""

    group: int
    server: str
    epoch: int


class Directory:
    """Lookup of the leader for a subject: a pure function for its group, and one table."""

    def __init__(self, groups: ChannelGroups, table: LeaderTable) -> None:
        """Create the lookup; ``table`` is replaced by each newer one."""
        self.groups = groups
        self.table = table

    def use(self, moved: Mapping[int, Leader]) -> None:
        """Take over the leaders of groups that have moved."""
        self.table = self.table.with_leaders(moved)

    def lookup(self, subject: str) -> ChannelPlace:
        """Return where the events of ``subject`` belong."""
        group = self.groups.group_of(subject)
        leader = self.table.leaders[group]
        return ChannelPlace(group, leader.server, leader.epoch)


def first_table(groups: int, servers: Iterable[str], key: bytes) -> LeaderTable:
    """Return the table of a new domain: each group is led by the server that hashing prefers, under epoch 1.

    :raises ConfigurationError: ``servers`` is empty
    """
    present = _sorted(servers)
    leaders = tuple(Leader(preferred_server(group, present, key), 1) for group in range(groups))
    return LeaderTable(1, present, leaders)


def preferred_server(group: int, servers: Iterable[str], key: bytes) -> str:
    """Return the server with the greatest weight for ``group``: rendezvous hashing with a keyed BLAKE2b digest."""

    def weight(server: str) -> tuple[bytes, str]:
        return blake2b(f"{group} {server}".encode(), key=key, digest_size=8).digest(), server

    return max(servers, key=weight)


def _sorted(servers: Iterable[str]) -> tuple[str, ...]:
    found = tuple(sorted(set(servers)))
    if not found:
        raise ConfigurationError("a domain needs at least one resolution server")
    return found
