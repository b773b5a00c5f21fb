"""Links between the servers of one process: messages are handed over, and there is no socket (DESIGN 10)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from wanderbus.machine import DatagramReceived, Input, Machine, Output
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.parts import SERVER_SOCKET
from wanderbus.peers.server_traffic import FIRST_LINK
from wanderbus.server.broker_role import BrokerRole
from wanderbus.server.event_domain_member import EventDomainMember
from wanderbus.server.ports import Bound

_WAKE = DatagramReceived(SERVER_SOCKET, ("127.0.0.1", 0), b"")


class InProcessLinks:
    """The links of one server, in place of those over reliable UDP."""

    def __init__(self, fabric: Fabric, name: str) -> None:
        self.name = name
        self.wanted: set[str] = set()
        """Servers to which it keeps a link."""
        self.links: dict[int, InProcessLinks] = {}
        """The other end of each open link."""
        self.role: BrokerRole | None = None
        self._fabric = fabric
        self._inbox: list[Output] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Hand over messages; return what has arrived."""
        for given in inputs:
            match given:
                case ConnectServer(server=server) if server not in self.wanted:
                    self.wanted.add(server)
                    self._fabric.open(self, server)
                case SendOnServerLink(link=link, payload=payload) if other := self.links.get(link):
                    self._fabric.messages += 1
                    other.post(ServerMessageReceived(link, self.name, payload))
                case CloseServerLink(link=link, reason=reason) if link in self.links:
                    self._fabric.close(self, link, reason)
        arrived, self._inbox = self._inbox, []
        return arrived

    def post(self, output: Output) -> None:
        """Report something in a later turn of the loop."""
        self._inbox.append(output)
        assert self.role is not None
        self.role._offer.feed(_WAKE)


class Fabric:
    """All servers of the process."""

    def __init__(self) -> None:
        self.messages = 0
        """Messages that were handed over."""
        self._ends: dict[str, InProcessLinks] = {}
        self._next_link = itertools.count(FIRST_LINK).__next__

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let every server that starts from now on use these links."""
        parts, make_machine, close = EventDomainMember.parts, BrokerRole.make_machine, BrokerRole.close

        def made(member: EventDomainMember, *arguments: Any) -> Any:
            links: Any = InProcessLinks(self, member.name)
            self._ends[member.name] = links
            return parts(member, *arguments)._replace(links=links)

        def machine_made(role: BrokerRole, bound: Mapping[str, Bound]) -> Machine:
            machine = make_machine(role, bound)
            assert role._member is not None
            self._ends[role._member.name].role = role
            for other in list(self._ends.values()):
                if role._member.name in other.wanted:
                    self.open(other, role._member.name)
            return machine

        def closed(role: BrokerRole) -> None:
            assert role._member is not None
            if end := self._ends.pop(role._member.name, None):
                for link in list(end.links):
                    self.close(end, link, f"{end.name} has ended")
            close(role)

        patch.setattr(EventDomainMember, "parts", made)
        patch.setattr(BrokerRole, "make_machine", machine_made)
        patch.setattr(BrokerRole, "close", closed)

    def open(self, opener: InProcessLinks, server: str) -> None:
        """Open a link, if the other server runs."""
        acceptor = self._ends.get(server)
        if acceptor is None or acceptor.role is None:
            return
        link = self._next_link()
        opener.links[link], acceptor.links[link] = acceptor, opener
        opener.post(ServerLinkOpened(link, acceptor.name, is_ours=True))
        acceptor.post(ServerLinkOpened(link, opener.name, is_ours=False))

    def close(self, end: InProcessLinks, link: int, reason: str) -> None:
        """Close a link at both ends; a server that still runs opens its own again."""
        other = end.links.pop(link)
        del other.links[link]
        for one, peer in ((end, other), (other, end)):
            if self._ends.get(one.name) is one:
                one.post(ServerLinkClosed(link, peer.name, reason))
