"""Attackers of the links between servers: one on the path without keys, and servers with keys of their own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from wanderbus.machine import Address
from wanderbus.peers.handshake import decode_handshake, is_handshake
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.messages import ConnectServer, PeerUnreachable
from wanderbus.peers.offers import LinkOffer
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.simulation.node import Node
from wanderbus.simulation.world import SeededRandom

if TYPE_CHECKING:
    from wanderbus.simulation.server_links.scenario import LinksScenario
    from wanderbus.simulation.server_links.server import LinkedServer

ELSEWHERE: Final[Address] = ("203.0.113.66", 6_666)
STRANGER: Final[Address] = ("203.0.113.67", 5_601)
LATER_S_MAX: Final = 10.0
_RECORDED_MAX: Final = 300
_ANSWER: Final = 0x02
_IDS_END: Final = 25
"""Place behind both ids of an answer, which follow its kind."""


class PathAttacker:
    """Sees every datagram, repeats some now and later, changes some, and replays offers and answers of any age.

    It also watches that servers answer only offers of servers, and send it no more than it sends.
    """

    def __init__(self, scenario: LinksScenario, chance: float, replays_per_s: float) -> None:
        self.injected = 0
        self.is_active = True
        self.usurped: set[Address] = set()
        """Addresses of servers that a stranger has taken."""
        self._scenario = scenario
        self._chance = chance
        self._replays_per_s = replays_per_s
        self._recorded: list[tuple[Address, Address, bytes]] = []
        self._offers: set[int] = set()
        self._credit_bytes: Counter[Address] = Counter()
        self._replay_later()

    def sees(self, source: Address, destination: Address, data: bytes) -> None:
        """Observe a datagram that is being sent."""
        draw = self._scenario.world.random
        if source not in self.usurped and source != STRANGER:
            self._check(source, destination, data)
        if is_handshake(data) and len(self._recorded) < _RECORDED_MAX:
            self._recorded.append((source, destination, data))
        if (
            self.is_active
            and self._replays_per_s
            and len(data) > _IDS_END
            and is_handshake(data)
            and data[8] == _ANSWER
        ):
            first = data[17:25] + data[9:17] + b"\x01" + bytes(11) + draw.randbytes(40)
            self._inject(destination, source, first, 0.0)
        if self.is_active and draw.random() < self._chance:
            made = data if draw.random() < 0.5 else self._changed(data)
            delay_s = draw.choice([0.0, 0.001, draw.uniform(0.0, LATER_S_MAX)])
            self._inject(draw.choice([source, ELSEWHERE]), destination, made, delay_s)

    def _check(self, source: Address, destination: Address, data: bytes) -> None:
        if destination == ELSEWHERE:
            self._credit_bytes[source] -= len(data)
            if self._credit_bytes[source] < 0:
                self._scenario.problems.append(f"{source} sends more to a stranger than it received")
        if is_handshake(data):
            message = decode_handshake(data)
            if isinstance(message, LinkOffer):
                self._offers.add(message.opener_id)
            elif message.opener_id not in self._offers:
                self._scenario.problems.append(f"{source} answers an offer that no server has made")

    def _replay_later(self) -> None:
        if self._replays_per_s:
            draw = self._scenario.world.random
            self._scenario.world.after(draw.expovariate(self._replays_per_s), self._replay)

    def _replay(self) -> None:
        draw = self._scenario.world.random
        if not self.is_active:
            return
        if self._recorded:
            source, destination, data = draw.choice(self._recorded)
            if draw.random() < 0.3:
                data = self._changed(data)
            if draw.random() < 0.1:
                source, destination = destination, source
            self._inject(draw.choice([source, ELSEWHERE]), destination, data, 0.0)
        self._replay_later()

    def _inject(self, source: Address, destination: Address, data: bytes, delay_s: float) -> None:
        self.injected += 1
        if source == ELSEWHERE:
            self._credit_bytes[destination] += len(data)
        self._scenario.network.carry(source, destination, data, delay_s)

    def _changed(self, data: bytes) -> bytes:
        draw = self._scenario.world.random
        changed = bytearray(data)
        match draw.randrange(4):
            case 0:
                return data[: draw.randrange(len(data))]
            case 1:
                return data + draw.randbytes(draw.randint(1, 40))
            case 2 if is_handshake(data) and self._recorded:
                other = draw.choice(self._recorded)[2]
                place = draw.choice([9, 17, 25, 57])
                return data[:place] + other[place:]
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(changed)


def start_stranger(scenario: LinksScenario, victim: LinkedServer, address: Address) -> Node:
    """Start a server at ``address`` that claims to be ``victim``, with keys that are not of the domain."""
    draw = scenario.world.random
    others = {each.name: (each.address, each.keys.public) for each in scenario.servers.values() if each is not victim}
    machine = ServerLinks(
        victim.name,
        KeyPair(draw.randbytes(KEY_BYTES)),
        others,
        "links.example",
        SeededRandom(scenario.world),
        scenario.next_link,
    )

    def report(output: object) -> None:
        if not isinstance(output, PeerUnreachable):
            scenario.problems.append(f"a stranger that claims to be {victim.name} reports {output!r}")

    node = Node(f"stranger {victim.name}", machine, {"servers": address}, scenario.world, scenario.network, report)
    node.feed([ConnectServer(each) for each in others])
    return node
