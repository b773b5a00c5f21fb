"""Decentralised channels of a domain as one of its servers sees them (SPEC K-01, K-04)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final

from wanderbus.channels.directory import Directory
from wanderbus.channels.interest.messages import Stream
from wanderbus.channels.merging import Merging
from wanderbus.subscription import EVERY_SUBJECT

INTEREST_PREFIX: Final = b"\x01"
"""First byte of a message about interest between servers; messages of agents are arrays, and begin with another."""

CAUSAL_PREFIX: Final = b"\x02"
"""First byte of a message of the causal order between servers."""

_DIGEST_BYTES: Final = 8


class DecentralisedChannels:
    """Lookup of decentralised channels.

    :param server: the name of this server
    :param servers: the names of all servers in the order of their numbers, also those that have left
    :param is_decentralised: whether the channel of a subject is decentralised
    :param merging_of: merging of the channel of a subject, and of subscriptions to every subject
    :param mergings: all values of ``merging_of``, in the same order at all servers
    :param has_ordered: whether there are ordered channels, too
    :param has_decentralised: whether there are decentralised channels now; False if there were, and servers send
        each other what they have accepted then
    :param joined: the number of servers at the end of ``servers`` that joined the domain later
    :param left: those of ``servers`` that have left the domain
    """

    def __init__(
        self,
        directory: Directory,
        server: str,
        servers: Iterable[str],
        is_decentralised: Callable[[str], bool] = lambda subject: True,
        merging_of: Callable[[str], Merging] = lambda subject: Merging(),
        mergings: Sequence[Merging] = (Merging(),),
        *,
        has_ordered: bool = True,
        has_decentralised: bool = True,
        joined: int = 0,
        left: Iterable[str] = (),
    ) -> None:
        self.directory = directory
        self.server = server
        self.servers = tuple(servers)
        self.number = self.servers.index(server)
        first = len(self.servers) - joined
        names = ["\n".join(self.servers[:first]), *self.servers[first:]]
        self.numbering = b"".join(blake2b(each.encode(), digest_size=_DIGEST_BYTES).digest() for each in names)
        """Digest of the first servers, then one of each server that joined later."""
        self.left = frozenset(left)
        self.mergings = tuple(mergings)
        self.lineage = directory.groups.hierarchy.lineage
        self._is_decentralised = is_decentralised
        self._merging_of = merging_of
        self.has_ordered = has_ordered
        self._has_decentralised = has_decentralised

    def has(self, subject: str) -> bool:
        """Return whether events of ``subject`` are sent directly."""
        return self._is_decentralised(subject)

    def concerns(self, subject: str) -> bool:
        """Return whether a subscription to ``subject`` can match events that are sent directly."""
        return self._has_decentralised if subject == EVERY_SUBJECT else self._is_decentralised(subject)

    def leaves(self, subject: str) -> bool:
        """Return whether a subscription to ``subject`` can match events of ordered channels."""
        return self.has_ordered and (subject == EVERY_SUBJECT or not self._is_decentralised(subject))

    def has_numbers(self, numbering: bytes) -> bool:
        """Return whether a server with this ``numbering`` gives the same numbers, as far as both know the servers."""
        return bool(numbering) and (self.numbering.startswith(numbering) or numbering.startswith(self.numbering))

    @property
    def present(self) -> tuple[str, ...]:
        """Return the servers that have not left."""
        return tuple(each for each in self.servers if each not in self.left)

    @property
    def others(self) -> tuple[str, ...]:
        """Return the other servers, without those that have left."""
        return tuple(each for each in self.present if each != self.server)

    @property
    def leaders(self) -> tuple[str, ...]:
        """Return the servers that synchronise interest, sorted."""
        return tuple(sorted({each.server for each in self.directory.table.leaders}))

    def leaders_of(self, subject: str) -> tuple[str, ...]:
        """Return the servers that synchronise interest in ``subject``."""
        return self.leaders if subject == EVERY_SUBJECT else (self.directory.lookup(subject).server,)

    def merging_place(self, subject: str) -> int:
        """Return the place of the merging of ``subject`` among :attr:`mergings`: the group of its streams."""
        return self.mergings.index(self._merging_of(subject))

    def requires_advertisement(self, subject: str) -> bool:
        """Return whether only advertised events of ``subject`` may be published (SPEC K-07)."""
        return self._is_decentralised(subject) and self._merging_of(subject).for_advertisers

    def advertised_at(self, subject: str) -> list[tuple[str, int]]:
        """Return the leaders and the places of merging that have to know an advertisement of ``subject``."""
        places = {self.merging_place(EVERY_SUBJECT)}
        if subject == EVERY_SUBJECT:
            places |= set(range(len(self.mergings)))
        elif self.requires_advertisement(subject):
            places |= {self.merging_place(subject)}
        else:
            return []
        required = sorted(each for each in places if self.mergings[each].for_advertisers)
        return [(leader, place) for leader in self.leaders_of(subject) for place in required]

    def streams_to(self, subject: str) -> list[Stream]:
        """Return the streams of other servers that may have interest in events of ``subject``, at its leader."""
        places = sorted({self.merging_place(subject), self.merging_place(EVERY_SUBJECT)})
        return [Stream(place, origin) for origin in self.others for place in places]
