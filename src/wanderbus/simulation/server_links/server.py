"""One server of a simulated domain with links: its lives, and everything that its links have carried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wanderbus.machine import Address, Output
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
    ServerReachable,
)
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.simulation.host import SimulatedHost
from wanderbus.simulation.node import Node
from wanderbus.simulation.server_links.checkers import LinkRecord, check_message, encode_message
from wanderbus.simulation.world import SeededRandom

if TYPE_CHECKING:
    from wanderbus.simulation.server_links.scenario import LinksScenario

DOMAIN: Final = "links.example"
SOCKET: Final = "servers"
_SIZES: Final = (0, 0, 10, 200, 1_100, 3_000, 60_000)


class LinkedServer(SimulatedHost[ServerLinks]):
    """A server that crashes and restarts with its static keys, and its owner, which sends and reads."""

    def __init__(self, scenario: LinksScenario, name: str, address: Address) -> None:
        super().__init__(ServerLinks)
        draw = scenario.world.random
        self.name = name
        self.address = address
        self.keys = KeyPair(draw.randbytes(KEY_BYTES))
        self.reset_key = draw.randbytes(KEY_BYTES)
        self.wanted: set[str] = set()
        """Servers that it keeps links to."""
        self.links: dict[int, LinkRecord] = {}
        """Its open links, by number."""
        self.unreachable: set[str] = set()
        """Servers that it has reported as unreachable, and not as reachable again."""
        self._scenario = scenario
        self._last_number = 0

    def start(self) -> None:
        """Start, and connect to all wanted servers."""
        scenario = self._scenario
        self.unreachable.clear()
        machine = ServerLinks(
            self.name,
            self.keys,
            {each.name: (each.address, each.keys.public) for each in scenario.servers.values()},
            DOMAIN,
            SeededRandom(scenario.world),
            scenario.next_link,
            socket=SOCKET,
            reset_key=self.reset_key,
        )
        self.node = Node(self.name, machine, {SOCKET: self.address}, scenario.world, scenario.network, self._on_report)
        self.feed(*(ConnectServer(server) for server in sorted(self.wanted)))

    def crash(self, *, loses_reset_key: bool = False) -> None:
        """Stop at once; all connections are lost."""
        self.kill()
        self.links.clear()
        if loses_reset_key:
            self.reset_key = self._scenario.world.random.randbytes(KEY_BYTES)

    def want(self, server: str, *, is_wanted: bool) -> None:
        """Keep a link to ``server`` from now on, or no longer."""
        (self.wanted.add if is_wanted else self.wanted.discard)(server)
        self.feed(ConnectServer(server) if is_wanted else DisconnectServer(server))

    def close_some_link(self) -> None:
        """Close a link, an own one or one of others."""
        if self.links:
            self.feed(CloseServerLink(self._scenario.world.random.choice(sorted(self.links)), "a whim"))

    def send_somewhere(self) -> None:
        """Send some messages on one link."""
        if self.links:
            draw = self._scenario.world.random
            self.send(self.links[draw.choice(sorted(self.links))], draw.choice([1, 1, 5, 40]))

    def send(self, link: LinkRecord, messages: int) -> None:
        """Send messages of random sizes on ``link``."""
        draw = self._scenario.world.random
        size = draw.choice(_SIZES) if messages < 40 else 100
        first = len(link.sent)
        link.sent += [encode_message(link.number, first + more, draw.randbytes(size)) for more in range(messages)]
        self._scenario.messages += messages
        self.feed(*(SendOnServerLink(link.number, payload) for payload in link.sent[first:]))

    def _on_report(self, output: Output) -> None:
        scenario, draw = self._scenario, self._scenario.world.random
        match output:
            case PeerUnreachable(server=server):
                self.unreachable.add(server)
            case ServerReachable(server=server):
                if server not in self.unreachable:
                    scenario.problems.append(f"{self.name}: {server} can be reached again, and was not reported")
                self.unreachable.discard(server)
            case ServerLinkOpened(link=number, server=server, is_ours=is_ours):
                if number <= self._last_number or number in scenario.records:
                    scenario.problems.append(f"{self.name}: link {number} is not a new number")
                self._last_number = number
                record = LinkRecord(number, self.name, server, is_ours)
                self.links[number] = scenario.records[number] = record
                scenario.openings += 1
                if draw.random() < 0.3:
                    scenario.world.after(0.0, lambda: self.send(record, 3) if number in self.links else None)
            case ServerLinkClosed(link=number, server=server):
                if self.links.pop(number).peer != server:
                    scenario.problems.append(f"{self.name}: link {number} was closed as one to {server}")
                scenario.closings += 1
            case ServerMessageReceived(link=number, server=server, payload=payload):
                if number not in self.links or self.links[number].peer != server:
                    scenario.problems.append(f"{self.name}: a message of {server} came on link {number}, not open")
                    return
                problem = check_message(scenario.records, self.links[number], payload)
                scenario.problems += [problem] if problem else []
                consumed = ConsumedOnServerLink(number, 1)
                scenario.world.after(draw.choice([0.0, 0.0, 0.01, 0.5]), lambda: self.feed(consumed))
