"""Servers of other domains as those here know them that hand sessions over; their names are ``DOMAIN/SERVER``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from wanderbus.hosts import domain_of
from wanderbus.machine import Input, Output
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    DisconnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)

FIRST_FAR_LINK: Final = 2**50
"""Number of the first link to a server of another domain: no other link has so high a number."""


VisitorsChoice = Literal["own", "home", "move"]
"""Service for users of a foreign domain who call here and have no session here: one of their own here, one in their own
domain, or the one of their own domain, which moves here."""


class AskServers(Input, frozen=True):
    """Ask which servers a domain has, and which one is to take a session of ``user``: :class:`ServersFound` answers."""

    domain: str
    user: str = ""


class ServersFound(Output, frozen=True):
    """The servers of a domain, without it, and the one for ``user``."""

    domain: str
    user: str
    servers: tuple[str, ...]
    chosen: str


class FarServerMet(Output, frozen=True):
    """A server of another domain is called at ``contacts``; ``version`` is that of the messages which it knows."""

    server: str
    contacts: tuple[str, ...]
    version: int = 0


FarRequest = ConnectServer | DisconnectServer | SendOnServerLink | CloseServerLink | AskServers
"""Requests to the links to servers of other domains."""

FarReport = ServerLinkOpened | ServerLinkClosed | ServerMessageReceived | FarServerMet | ServersFound
"""Reports of these links."""


class FarDomain(msgspec.Struct, frozen=True):
    """Shared with a foreign domain: types that are received and sent, whether sessions move, and its visitors."""

    receives: frozenset[str] = frozenset()
    sends: frozenset[str] = frozenset()
    gives_sessions: bool = False
    takes_sessions: bool = False
    visitors: VisitorsChoice = "own"


class FarDomains(msgspec.Struct, frozen=True):
    """The own domain and the foreign ones, as handovers need them."""

    own: str = ""
    foreign: dict[str, FarDomain] = {}
    server: str = ""
    """Name of this server to other domains, "" if it is the one that ids of events here have."""
    lineage: Callable[[str], Sequence[str]] = lambda subject: (subject,)
    """Returns a subject, its parent and so on up to the top."""

    def use(self, foreign: Mapping[str, FarDomain]) -> None:
        """Use these foreign domains instead, for moves that begin from now on."""
        self.foreign.clear()
        self.foreign.update(foreign)

    def fetches(self, user: str) -> bool:
        """Return whether the session of a user of another domain moves here when the user calls."""
        there = self.foreign.get(domain_of(user))
        return there is not None and there.visitors == "move"

    def of(self, server: str) -> FarDomain | None:
        """Return the domain of a server or a target; None for one of the own domain, and for an unknown one."""
        domain, is_there, _ = server.partition("/")
        return self.foreign.get(domain) if is_there or server in self.foreign else None


def without_prefix(report: FarReport) -> FarReport:
    """Return a report without the first byte of its message: all messages of other domains are about handovers."""
    if isinstance(report, ServerMessageReceived):
        return ServerMessageReceived(report.link, report.server, report.payload[1:])
    return report
