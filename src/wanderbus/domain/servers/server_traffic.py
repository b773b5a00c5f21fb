"""Messages between servers: routes of the links, of the sessions at leaders, and of the broker's part in both.

A link that another server has opened is to the broker what the data channel of an agent is. On a link that this server
has opened, it has a session at the other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wanderbus.broker.messages import LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.servers.server_users import server_user
from wanderbus.composition import Composition, Part
from wanderbus.domain.parts import BROKER, LEADERS, SERVER_LINKS
from wanderbus.domain.servers.leader_sessions import LeaderSessions
from wanderbus.domain.servers.leader_status import LeaderStatus
from wanderbus.domain.servers.links import ServerLinks
from wanderbus.domain.servers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.machine import Input, Output

FIRST_LINK: Final = 2**48
"""Number of the first link between servers: no link of an agent has so high a number."""

_DEVICE: Final = "server"
_FOR_LINKS: Final = (ConnectServer, SendOnServerLink, CloseServerLink)


class ServerTraffic:
    """Routes between the links to other servers, this server's sessions at leaders, and the broker.

    :param domain: the domain of the servers, which their users at the broker have
    """

    def __init__(self, parts: Composition, links: ServerLinks, leaders: LeaderSessions, domain: str) -> None:
        self._parts = parts
        self._leaders = leaders
        self._domain = domain
        self._accepted: set[int] = set()
        """Links that other servers have opened."""
        parts.add(SERVER_LINKS, Part(links.step, self.route_links))
        parts.add(LEADERS, Part(leaders.step, self.route_leaders))

    def statuses(self) -> list[LeaderStatus]:
        """Return the state of this server's session at each leader."""
        return self._leaders.statuses()

    def start(self) -> None:
        """Open the links to all leaders."""
        self._parts.give(SERVER_LINKS, self._leaders.start())

    def route_links(self, outputs: list[Output], now: float) -> None:
        """Pass what arrived to the sessions at leaders and to the broker, each as one batch."""
        for_broker: list[Input] = []
        for_leaders: list[Output] = []
        read: dict[int, int] = {}
        for output in outputs:
            match output:
                case ServerMessageReceived(link=link, payload=payload):
                    if link in self._accepted:
                        for_broker.append(MessageArrived(link, payload))
                    else:
                        for_leaders.append(output)
                        read[link] = read.get(link, 0) + 1
                case ServerLinkOpened(link=link, server=server, is_ours=False):
                    self._accepted.add(link)
                    user = server_user(server, self._domain)
                    for_broker.append(LinkOpened(link, user, _DEVICE, is_server=True))
                case ServerLinkClosed(link=link, reason=reason) if link in self._accepted:
                    self._accepted.remove(link)
                    for_broker.append(LinkClosed(link, reason))
                case ServerLinkOpened() | ServerLinkClosed():
                    for_leaders.append(output)
                case _:
                    self._parts.emit(output)
        self._parts.give(LEADERS, for_leaders)
        self._parts.give(BROKER, for_broker)
        # The windows of the session bound the events, so a link needs no other bound.
        self._parts.give(SERVER_LINKS, [ConsumedOnServerLink(link, count) for link, count in read.items()])

    def route_leaders(self, outputs: list[Input | Output], now: float) -> None:
        """Pass messages to the links, and events and answers to the broker, each as one batch."""
        for_links: list[Input] = []
        for_broker: list[Input] = []
        for output in outputs:
            if isinstance(output, Output):
                self._parts.emit(output)
            elif isinstance(output, _FOR_LINKS):
                for_links.append(output)
            else:
                for_broker.append(output)
        self._parts.give(SERVER_LINKS, for_links)
        self._parts.give(BROKER, for_broker)

    def give_broker_outputs(self, for_links: Iterable[Output], for_leaders: list[Output]) -> None:
        """Pass the broker's outputs for links of other servers, and those about leaders."""
        self._parts.give(LEADERS, for_leaders)
        given: list[Input] = []
        for output in for_links:
            match output:
                case SendOnLink(link=link, payload=payload):
                    given.append(SendOnServerLink(link, payload))
                case LinkDropped(link=link, reason=reason):
                    given.append(CloseServerLink(link, reason))
        self._parts.give(SERVER_LINKS, given)

    def consumed(self, done: Mapping[int, int]) -> None:
        """Report how many messages of the links of other servers the broker has processed."""
        reports = [ConsumedOnServerLink(link, count) for link, count in done.items() if link in self._accepted]
        self._parts.give(SERVER_LINKS, reports)
