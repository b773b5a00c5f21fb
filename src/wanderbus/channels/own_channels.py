"""Channels of a domain as one of its servers sees them: those that it leads, and the leaders of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from wanderbus.channels.directory import Directory
from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.filters.merging import PRECISION_MIN


class Merging(NamedTuple):
    """Merging of the filters of a channel; ``precision_min`` is the bound of adaptive merging alone."""

    mode: InterestMode = "perfect"
    precision_min: float = PRECISION_MIN


class OwnChannels:
    """Lookup of the leader of a subject, for one server of the domain.

    :param server: the name of this server
    :param merging_of: merging of the channel of a subject, and of subscriptions to every subject (SPEC B-05)
    """

    def __init__(
        self, directory: Directory, server: str, merging_of: Callable[[str], Merging] = lambda subject: Merging()
    ) -> None:
        self.directory = directory
        self.server = server
        self.merging_of = merging_of
        self.lineage = directory.groups.hierarchy.lineage
        """Returns a subject, its parent and so on up to the top (SPEC J-13)."""

    def leader(self, subject: str) -> str:
        """Return the name of the server that leads the channel of ``subject``."""
        return self.directory.lookup(subject).server

    def leads(self, subject: str) -> bool:
        """Return whether this server leads the channel of ``subject``, so that it numbers the events."""
        return self.leader(subject) == self.server

    def other_leaders(self, subjects: Iterable[str]) -> frozenset[str]:
        """Return the other servers whose events a subscription to ``subjects`` can match; ``*`` means every subject."""
        leaders = self.directory.table.leaders
        groups = self.directory.groups.groups_of(subjects)
        return frozenset(leaders[group].server for group in groups) - {self.server}
