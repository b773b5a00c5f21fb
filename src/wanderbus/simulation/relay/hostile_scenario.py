"""Simulated history of a hostile relay: it carries two calls, and its victims cannot be reached otherwise.

The relay loses, delays by minutes, reorders, repeats, cuts, lengthens and alters datagrams. It sends them back, to the
other call, or under the address of a bystander, and floods both ends with forgeries. It does not have the keys. Then it
forwards everything correctly, or the parties agree on another path while it continues. After that every message arrives
once and in order, unless a connection failed, which leaves a prefix of them. All the time a bystander is sent no more
bytes than came in its name, and the memory of the ends is bounded.
"""

from __future__ import annotations

from typing import ClassVar, Final

from wanderbus.machine import Address, Output
from wanderbus.rudp import (
    ChangePath,
    ConnectionFailed,
    ConnectionReset,
    Endpoint,
    MessageReceived,
    MovedHere,
    OpenConnection,
    RudpConfig,
    SendMessage,
)
from wanderbus.rudp.interface import Secrets
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.rudp.wire import HEADER_BYTES, KIND_OFFSET, RESET, SEALED
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.weight import weight_bytes
from wanderbus.simulation.world import SeededRandom

HOSTILE_S: Final = 180.0
SETTLE_S: Final = 90.0
LATER_S_MAX: Final = 150.0
FLOOD_DATAGRAMS: Final = 50
KEPT_BYTES_MAX: Final = 110_000
"""Memory of an endpoint besides messages in flight: abandoned packets whose ACK is still accepted."""

MESSAGE_BYTES: Final = 600
"""Memory of a message in flight besides its bytes."""

RELAY_IP: Final = "198.51.100.1"
BYSTANDERS: Final[tuple[Address, ...]] = (("203.0.113.66", 6_666), ("203.0.113.67", 53))
_NUMBER_OFFSET: Final = 20


class HostileParty:
    """One end of a call, with the messages that its application sent and received."""

    def __init__(self, scenario: HostileRelayScenario, number: int) -> None:
        self.number = number
        self._world = scenario.world
        self.name = "abcd"[number]
        self.address: Address = (f"192.0.2.{number + 1}", 40_000)
        self.ports: tuple[Address, Address] = ((RELAY_IP, 30_000 + number), (RELAY_IP, 31_000 + number))
        """Ports of the relay for this party: the signalled ones, and others."""
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        self.failed_at: float | None = None
        self.was_reset = False
        self.endpoint = Endpoint(
            SeededRandom(scenario.world),
            RudpConfig(keepalive_s=scenario.world.random.choice([None, 5.0])),
            reset_key=scenario.world.random.randbytes(16),
        )
        self.local_id = self.endpoint.allocate()
        sockets = {"data": self.address}
        self.node = Node(self.name, self.endpoint, sockets, scenario.world, scenario.network, self._reported)

    def _reported(self, output: Output) -> None:
        match output:
            case MessageReceived(payload=payload):
                self.received.append(payload)
            case ConnectionFailed():
                self.failed_at = self._world.now
            case ConnectionReset():
                self.was_reset = True


class HostileRelay:
    """Forwards between the ports of a call's two parties, and does harm while it is ``hostile``."""

    def __init__(self, scenario: HostileRelayScenario) -> None:
        self.hostile = True
        self.carries = True
        """True if the relay forwards datagrams at all; it may repeat earlier ones in any case."""
        self.harmed = self.flooded = 0
        self.owed: dict[Address, int] = dict.fromkeys(BYSTANDERS, 0)
        """Bytes sent in the name of each bystander."""
        self._world, self._network, self._parties = scenario.world, scenario.network, scenario.parties
        self._chance = scenario.world.random.choice([0.1, 0.3, 0.6, 0.95])
        self._seen: list[bytes] = []
        for party in self._parties:
            for port in party.ports:
                self._network.bind(port, lambda source, data, party=party: self._take(party, data))  # type: ignore[misc]

    def _take(self, party: HostileParty, data: bytes) -> None:
        draw, peer = self._world.random, self._parties[party.number ^ 1]
        if not self.hostile:
            self._send(peer.ports[0], peer, data, 0.02)
            return
        self._seen.append(data)
        if not self.carries:
            self._send(draw.choice(peer.ports), peer, draw.choice(self._seen), 0.02)
        elif draw.random() >= self._chance:
            self._send(peer.ports[0], peer, data, 0.02)
        else:
            self.harmed += 1
            self._forward_damaged(party, peer, data)
        if draw.random() < 0.02:
            self._flood(peer, data)

    def _forward_damaged(self, party: HostileParty, peer: HostileParty, data: bytes) -> None:
        draw = self._world.random
        later_s = draw.choice([draw.uniform(0.0, 0.5), draw.uniform(0.0, LATER_S_MAX)])
        match draw.randrange(8):
            case 0:
                return
            case 1:
                self._send(peer.ports[0], peer, data, later_s)
            case 2:
                for _ in range(draw.randint(2, 5)):
                    self._send(peer.ports[0], peer, data, later_s * draw.random())
            case 3:
                self._send(peer.ports[0], peer, self._altered(data), 0.02)
            case 4:
                other = draw.choice([each for each in self._parties if each.number // 2 != party.number // 2])
                self._send(draw.choice(other.ports), other, data, later_s)
            case 5:
                self._send(party.ports[0], party, data, 0.02)
            case 6:
                source = draw.choice(BYSTANDERS)
                self._send(source, peer, draw.choice([data, data, self._altered(data)]), 0.02)
            case _:
                self._send(peer.ports[1], peer, draw.choice([data, data, draw.choice(self._seen)]), 0.02)

    def _altered(self, data: bytes) -> bytes:
        draw = self._world.random
        changed = bytearray(data)
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        reset = data[:KIND_OFFSET] + bytes([RESET]) + draw.randbytes(16)
        return draw.choice([data[: draw.randrange(len(data))], data + draw.randbytes(40), bytes(changed), reset])

    def _flood(self, peer: HostileParty, data: bytes) -> None:
        """Send datagrams with the ids, the kind and the size of a genuine packet, under later numbers."""
        draw = self._world.random
        if len(data) <= HEADER_BYTES or data[KIND_OFFSET] != SEALED:
            return
        number = int.from_bytes(data[_NUMBER_OFFSET:HEADER_BYTES], "big")
        for each in range(FLOOD_DATAGRAMS):
            head = data[: KIND_OFFSET + 1] + bytes([draw.choice([data[KIND_OFFSET + 1], draw.randrange(256)])])
            later = (number + draw.choice([1, each, 2**40])).to_bytes(8, "big")
            made = head + data[KIND_OFFSET + 2 : _NUMBER_OFFSET] + later + draw.randbytes(len(data) - HEADER_BYTES)
            self.flooded += 1
            self._send(draw.choice([*peer.ports, *BYSTANDERS]), peer, made, 0.02)

    def _send(self, source: Address, party: HostileParty, data: bytes, delay_s: float) -> None:
        if source in self.owed:
            self.owed[source] += len(data)
        self._network.carry(source, party.address, data, delay_s)


class HostileRelayScenario(Scenario):
    """A world with two calls and the relay between all four parties, set up by the seed."""

    counted: ClassVar = {
        "messages": "messages",
        "failures": "failures",
        "harmed": "datagrams harmed",
        "flooded": "made up",
        "forged": "not opened",
        "learnt": "parties led elsewhere",
        "to_bystanders": "bytes to bystanders",
        "datagrams": "datagrams",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.network = Network(self.world, PathConditions(delay_min_s=0.02, delay_max_s=0.02))
        self.network.tap = self._check_datagram
        self.parties = [HostileParty(self, number) for number in range(4)]
        self.relay = HostileRelay(self)
        self.other_way = self.world.random.random() < 0.5
        """True if the parties leave the relay, which then continues as before."""
        self._sent_to: dict[Address, int] = dict.fromkeys(BYSTANDERS, 0)

    def counts(self) -> dict[str, float]:
        return {
            "messages": sum(len(party.received) for party in self.parties),
            "harmed": self.relay.harmed,
            "flooded": self.relay.flooded,
            "forged": sum(party.endpoint.counters.forged for party in self.parties),
            "learnt": sum(party.endpoint.counters.paths for party in self.parties),
            "to_bystanders": sum(self._sent_to.values()),
            "failures": sum(party.failed_at is not None for party in self.parties),
            "datagrams": self.network.delivered,
        }

    def _play(self) -> None:
        world, draw = self.world, self.world.random
        self._open()
        for party in self.parties:
            for _ in range(draw.choice([10, 40, 120])):
                world.at(draw.uniform(0, HOSTILE_S), lambda party=party: self._send(party))  # type: ignore[misc]
        self._weigh()
        world.run(HOSTILE_S)
        if self.other_way:
            self._leave_the_relay()
        else:
            self.relay.hostile = False
            self._renegotiate()
        world.run(HOSTILE_S + SETTLE_S)

    def _open(self) -> None:
        for first in (0, 2):
            keys = [self.world.random.randbytes(32) for _ in range(2)]
            for number in (0, 1):
                party, peer = self.parties[first + number], self.parties[first + 1 - number]
                secrets = Secrets(sending=keys[number], receiving=keys[1 - number])
                party.node.feed([OpenConnection(party.local_id, peer.local_id, party.ports[0], 0, secrets)])

    def _leave_the_relay(self) -> None:
        """Switch to a path that signalling found without the relay, which sometimes repeats old datagrams."""
        self.relay.carries = False
        for party in self.parties:
            peer = self.parties[party.number ^ 1]
            party.node.feed([MovedHere(party.local_id, 1), ChangePath(party.local_id, peer.address, 1)])

    def _renegotiate(self) -> None:
        """Start again with the ports that signalling names: a party may have been misled to others."""
        for party in self.parties:
            party.node.feed([MovedHere(party.local_id, 1), ChangePath(party.local_id, party.ports[0], 1)])

    def _send(self, party: HostileParty) -> None:
        message = self.world.random.randbytes(self.world.random.choice([1, 100, 1_000, 3_000]))
        party.sent.append(message)
        party.node.feed([SendMessage(party.local_id, message)])

    def _check_datagram(self, source: Address, destination: Address, data: bytes) -> None:
        """Check each datagram of a party: it goes to the relay, to its peer, or to a bystander within its budget."""
        if destination in self._sent_to:
            self._sent_to[destination] += len(data)
            if self._sent_to[destination] > self.relay.owed[destination]:
                self.problems.append(
                    f"{destination[0]} was sent {self._sent_to[destination]} bytes for {self.relay.owed[destination]}"
                )
        elif destination[0] != RELAY_IP and destination not in [party.address for party in self.parties]:
            self.problems.append(f"{len(data)} bytes went to {destination[0]}")

    def _weigh(self) -> None:
        for party in self.parties:
            peer = self.parties[party.number ^ 1]
            under_way = [*party.sent[len(peer.received) :], *peer.sent[len(party.received) :]]
            most = KEPT_BYTES_MAX + sum(2 * len(message) + 3 * MESSAGE_BYTES for message in under_way)
            if (weight := weight_bytes(party.endpoint)) > most:
                self.problems.append(f"{party.name} keeps {weight} bytes, more than {most}, at {self.world.now:.1f}")
        self.world.after(2.0, self._weigh)

    def _check_promises(self) -> None:
        for party in self.parties:
            peer = self.parties[party.number ^ 1]
            got, ends = party.received, [each.failed_at for each in (party, peer) if each.failed_at is not None]
            if got != peer.sent[: len(got)]:
                self.problems.append(f"{party.name}: {len(got)} of {len(peer.sent)} messages, not once and in order")
            elif len(got) < len(peer.sent) and not ends:
                self.problems.append(f"{party.name}: {len(got)} of {len(peer.sent)} messages after all was mended")
            if party.was_reset:
                self.problems.append(f"{party.name}: the relay reset the connection")
            if ends and min(ends) > HOSTILE_S:
                self.problems.append(f"{party.name}: the connection failed after all was mended")
