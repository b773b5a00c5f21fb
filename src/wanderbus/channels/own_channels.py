"""Channels of a domain as one of its servers sees them: those that it leads, and the leaders of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory
from wanderbus.channels.merging import Merging

__all__ = ["Merging", "OwnChannels"]


class OwnChannels:
    """Lookup of the leader of a subject, for one server of the domain.

    :param server: the name of this server
    :param merging_of: merging of the channel of a subject, and of subscriptions to every subject (SPEC B-05)
    :param decentralised: the decentralised channels; None if all are ordered
    :param others: the other servers of the domain
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
    ) -> None:
        self.directory = directory
        self.server = server
        self.merging_of = merging_of
        self.decentralised = decentralised
        self.others = tuple(others)
        self.layout = layout
        self.parents = directory.groups.hierarchy.parents
        self.lineage = directory.groups.hierarchy.lineage
        """Returns a subject, its parent and so on up to the top (SPEC J-13)."""
        self.below = directory.groups.hierarchy.below
        """Returns a subject and all subjects below it."""

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
        return self.leader(subject) == self.server and (
            self.decentralised is None or not self.decentralised.has(subject)
        )

    @property
    def leads_ordered(self) -> bool:
        """Return whether this server may lead ordered channels."""
        has_ordered = self.decentralised is None or self.decentralised.has_ordered
        return has_ordered and self.server in self.directory.table.servers

    def leaders(self, subjects: Iterable[str]) -> frozenset[str]:
        """Return the leaders of ordered channels whose events a subscription to ``subjects`` can match.

        ``*`` means every subject.
        """
        leaders = self.directory.table.leaders
        if self.decentralised is not None:
            subjects = [each for each in subjects if self.decentralised.leaves(each)]
        groups = self.directory.groups.groups_of(subjects)
        return frozenset(leaders[group].server for group in groups)

    def other_leaders(self, subjects: Iterable[str]) -> frozenset[str]:
        """Return those of :meth:`leaders` that are not this server."""
        return self.leaders(subjects) - {self.server}
