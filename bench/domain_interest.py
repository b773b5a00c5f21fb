"""Messages between servers for a change of interest in a decentralised channel, with and without multicast (SPEC J-12).

The interest of each server is that of a real server. Links and the multicast group are one queue that keeps the order,
disks are durable at once, and nothing is lost. A datagram to the group is one message, whoever gets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from bench.domain_model import DOMAIN, KEY
from harness.reporting import Goal, goal
from wanderbus.broker.messages import DecentralisedInterestChanged, InterestEffective, RoutesAnswered, RoutesArrived
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.filters import parse
from wanderbus.machine import DatagramReceived, Input, Output, SendDatagram
from wanderbus.peers.decentralised_interest import DecentralisedInterest
from wanderbus.peers.messages import SendOnServerLink, ServerLinkOpened, ServerMessageReceived
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.simulation.domains.multicast_network import GROUP, DrawnRandom

SERVERS: Final = 8
_SUBJECT: Final = "Departure"


class InterestDomain:
    """A domain of ``size`` servers that exchange interest; all links are open, and all interest is known."""

    def __init__(self, size: int, *, has_multicast: bool) -> None:
        names = tuple(f"s{number}" for number in range(1, size + 1))
        directory = Directory(ChannelGroups(KEY, GROUPS), first_table(GROUPS, names, KEY))
        self.link_messages = self.datagrams = 0
        self.counting: set[str] = set()
        """Subscriptions that count everywhere."""
        self._routes = {name: IncomingStreams() for name in names}
        self._queue: deque[tuple[str, Input | Output]] = deque()
        self._links: dict[int, tuple[str, str]] = {}
        """Opener and acceptor of each link."""
        self.servers: dict[str, DecentralisedInterest] = {}
        for number, name in enumerate(names):
            group = None
            if has_multicast:
                random = DrawnRandom(Random(number))
                group = MulticastGroup(GROUP, KEY, domain=DOMAIN, servers=names, server=name, random=random)
            self.servers[name] = DecentralisedInterest(
                DecentralisedChannels(directory, name, names), epoch=1, group=group
            )
        for name, server in self.servers.items():
            self._perform(name, server.start(0.0))
        for opener in names:
            for acceptor in names:
                if opener != acceptor:
                    self._open(opener, acceptor)
        self._run()
        self.link_messages = self.datagrams = 0

    def change(self, server: str, change: DecentralisedInterestChanged) -> None:
        """Change the interest of ``server``, and deliver all that follows."""
        self._queue.append((server, change))
        self._run()

    def _open(self, opener: str, acceptor: str) -> None:
        link = len(self._links) + 1
        self._links[link] = opener, acceptor
        self._queue += [
            (opener, ServerLinkOpened(link, acceptor, is_ours=True)),
            (acceptor, ServerLinkOpened(link, opener, is_ours=False)),
        ]

    def _run(self) -> None:
        while self._queue:
            name, given = self._queue.popleft()
            self._perform(name, self.servers[name].step([given], 0.0))

    def _perform(self, name: str, outputs: Iterable[Input | Output]) -> None:
        for each in outputs:
            match each:
                case SendOnServerLink(link=link, payload=payload):
                    self.link_messages += 1
                    opener, acceptor = self._links[link]
                    target = acceptor if name == opener else opener
                    self._queue.append((target, ServerMessageReceived(link, name, payload[1:])))
                case SendDatagram(socket=socket, data=data):
                    self.datagrams += 1
                    self._queue += [(other, DatagramReceived(socket, GROUP, data)) for other in self.servers]
                case RoutesArrived(leader=leader, link=link, message=message):
                    answer = self._routes[name].receive(leader, message, 0.0).answer
                    if answer is not None:
                        self._queue.append((name, RoutesAnswered(leader, link, answer)))
                case InterestEffective(names=names):
                    self.counting |= set(names)


def measured() -> list[Mapping[str, Any]]:
    """Return a row without and one with multicast: each server subscribes once and unsubscribes."""
    rows: list[Mapping[str, Any]] = []
    for has_multicast in (False, True):
        domain = InterestDomain(SERVERS, has_multicast=has_multicast)
        for number, name in enumerate(domain.servers):
            domain.change(name, DecentralisedInterestChanged({name: ((_SUBJECT, parse(f"N == {number}")),)}))
        if domain.counting != domain.servers.keys():
            raise RuntimeError(f"only the subscriptions of {sorted(domain.counting)} count")
        for name in domain.servers:
            domain.change(name, DecentralisedInterestChanged({}, (name,)))
        changes = 2 * SERVERS
        rows.append(
            {
                "servers": SERVERS,
                "multicast": has_multicast,
                "messages_per_change": (domain.link_messages + domain.datagrams) / changes,
                "link_messages_per_change": domain.link_messages / changes,
                "datagrams_per_change": domain.datagrams / changes,
            }
        )
    return rows


def goals_of(rows: Sequence[Mapping[str, Any]]) -> list[Goal]:
    """Return the messages for each change, which have no bound."""
    without, by_multicast = (each["messages_per_change"] for each in rows)
    return [
        goal("interest_change_messages", without, "messages"),
        goal("interest_change_messages_multicast", by_multicast, "messages"),
    ]
