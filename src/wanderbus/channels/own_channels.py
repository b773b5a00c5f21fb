"""Channels of a domain as one of its servers sees them: those that it leads, and the leaders of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, Leader
from wanderbus.channels.merging import Merging

__all__ = ["Merging", "OwnChannels"]


class OwnChannels:
    """Lookup of the leader of a subject, for one server of the domain.

    :param server: the name of this server
    :param merging_of: merging of the channel of a subject, and of subscriptions to every subject (SPEC B-05)
    :param decentralised: the decentralised channels; None if all are ordered
    :param others: the other servers of the domain
    :param founders: the servers that lead the groups which have not moved; unless given, all that may lead
    :param left: servers that have left the domain for good
    :param joins: True for a server that joined the domain later: the others may not know it yet
    :param layout: identifies all that determines where events and interest go; the same at servers that have a link
    """

    def __init__(
        self,
        directory: Directory,
        server: str,
        merging_of: Callable[[str], Merging] = lambda subject: Merging(),
        decentralised: DecentralisedChannels | None = None,
        others: Iterable[str] = (),
        layout: bytes = b"",
        *,
        founders: Iterable[str] | None = None,
        left: Iterable[str] = (),
        joins: bool = False,
    ) -> None:
        self._of_file = directory.table
        self.directory = Directory(directory.groups, directory.table)
        """Directory with the present leaders, of this server alone."""
        self._targets: Mapping[int, str] = {}
        """Servers that are about to lead groups."""
        self.server = server
        self.merging_of = merging_of
        self.decentralised = decentralised
        self.others = tuple(others)
        self.layout = layout
        self.founders = self._of_file.servers if founders is None else tuple(founders)
        self.left = tuple(left)
        self.joins = joins
        self.parents = directory.groups.hierarchy.parents
        self.lineage = directory.groups.hierarchy.lineage
        """Returns a subject, its parent and so on up to the top (SPEC J-13)."""
        self.below = directory.groups.hierarchy.below
        """Returns a subject and all subjects below it."""

    def take_over(self, moved: Mapping[int, Leader], targets: Mapping[int, str]) -> None:
        """Use these leaders of the groups that have moved, and know who is about to lead groups."""
        self.directory.table = self._of_file.with_leaders(moved)
        self._targets = targets

    def file_leader(self, group: int) -> str:
        """Return the server that leads a group if that has not moved, by the domain's file."""
        return self._of_file.leaders[group].server

    def leader(self, subject: str) -> str:
        """Return the name of the server that leads the channel of ``subject``."""
        directory = self.directory
        return directory.table.leaders[directory.groups.group_of(subject)].server

    def leads(self, subject: str) -> bool:
        """Return whether this server accepts events of ``subject``: it leads the channel, or that is decentralised."""
        if self.decentralised is not None and self.decentralised.has(subject):
            return True
        return self.leader(subject) == self.server

    def leads_in_order(self, subject: str) -> bool:
        """Return whether this server leads the channel of ``subject``, and it is ordered."""
        group = self.ordered_group(subject)
        return group is not None and self.directory.table.leaders[group].server == self.server

    def session_places(self, *, have_moved: bool) -> frozenset[str]:
        """Return the other servers that lead ordered channels, or may do so, or may still have events of former ones.

        One that has left gives its groups away before, but this server may not have heard of that yet.
        """
        table = self.directory.table
        leaders = {each.server for each in table.leaders}
        former = self.others if have_moved else ()
        return frozenset({*table.servers, *self.founders, *leaders, *former} - {self.server})

    def is_present(self, server: str) -> bool:
        """Return whether a server is in the domain now."""
        return server in self.directory.table.servers or server in self.others

    @property
    def awaits_interest(self) -> bool:
        """Return whether leaders wait for a report of each server that they have all its interest."""
        return bool(self.layout)

    @property
    def leads_ordered(self) -> bool:
        """Return whether this server may lead ordered channels."""
        has_ordered = self.decentralised is None or self.decentralised.has_ordered
        return has_ordered and self.server in self.directory.table.servers

    def ordered_group(self, subject: str) -> int | None:
        """Return the channel group of the events of ``subject``; None if its channel is decentralised."""
        if self.decentralised is not None and self.decentralised.has(subject):
            return None
        return self.directory.groups.group_of(subject)

    def leaders(self, subjects: Iterable[str]) -> frozenset[str]:
        """Return the leaders of ordered channels whose events a subscription to ``subjects`` can match.

        ``*`` means every subject.
        """
        leaders = self.directory.table.leaders
        return frozenset(leaders[group].server for group in self._ordered_groups(subjects))

    def other_leaders(self, subjects: Iterable[str]) -> frozenset[str]:
        """Return the other servers that a subscription to ``subjects`` has to count at.

        These are :meth:`leaders`, and the servers that are about to lead one of the groups.
        """
        leaders = self.directory.table.leaders
        groups = self._ordered_groups(subjects)
        found = {leaders[group].server for group in groups}
        found |= {target for group, target in self._targets.items() if group in groups}
        return frozenset(found - {self.server})

    def have_moved(self, subjects: Iterable[str]) -> bool:
        """Return whether the leader of a group of ``subjects`` has changed, or is about to."""
        leaders = self.directory.table.leaders
        return any(group in self._targets or leaders[group].epoch > 1 for group in self._ordered_groups(subjects))

    def is_in(self, subject: str, group: int) -> bool:
        """Return whether a subscription to ``subject`` can match events of an ordered channel of ``group``."""
        return group in self._ordered_groups([subject])

    def _ordered_groups(self, subjects: Iterable[str]) -> frozenset[int]:
        """Return the groups of those ``subjects`` that can match events of ordered channels."""
        if self.decentralised is not None:
            subjects = [each for each in subjects if self.decentralised.leaves(each)]
        return self.directory.groups.groups_of(subjects)
