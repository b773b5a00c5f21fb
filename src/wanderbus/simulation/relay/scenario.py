"""Simulated history of the media relay: two parties of reliable UDP that can only communicate through it (SPEC I).

Each may be behind NAT, where its own description of its address is useless and the address changes without notice. Each
may move, and announce it. Datagrams are lost, repeated and late. An attacker off the path knows every port of the relay
and sends to them, also under the parties' addresses. The relay may be restarted, and the next offer then sets it up
again. Still every message arrives once and in order, strangers are sent nothing, and no state is left after the call.
"""

from __future__ import annotations

from typing import ClassVar, Final

from wanderbus.datachannel import ChannelEnd, describe_end
from wanderbus.machine import Address, DatagramReceived, Output
from wanderbus.relay import NG_SOCKET, ng
from wanderbus.rudp import (
    ChangePath,
    ConnectionFailed,
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
from wanderbus.simulation.relay.relay_host import RelayHost
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.world import SeededRandom
from wanderbus.sip.message.sdp import SessionDescription

ACTIVE_S: Final = 30.0
SETTLE_S: Final = 20.0
"""Time longer than a packet is repeated."""

RELAY_IP: Final = "198.51.100.1"
PROXY: Final[Address] = ("198.51.100.2", 5_060)
STRANGER: Final[Address] = ("203.0.113.66", 6_666)
PORTS: Final = range(30_000, 30_012)
CALL: Final = "call"


class Party:
    """An endpoint, its address, its own description, and the messages that its application sent and received."""

    def __init__(self, scenario: RelayScenario, tag: str, number: int) -> None:
        draw = scenario.world.random
        self.tag = tag
        self.is_behind_nat = draw.random() < 0.5
        self.generation = 0
        self.sent: list[bytes] = []
        self.had: list[bytes] = []
        self.failed = False
        self.hears_from: Address | None = None
        """Address of the other party as this one knows it: the relay's."""
        self._number = number
        self._places = 0
        keepalive_s = 1.0 if self.is_behind_nat else None
        self.endpoint = Endpoint(SeededRandom(scenario.world), RudpConfig(keepalive_s=keepalive_s))
        self.local_id = self.endpoint.allocate()
        sockets = {"data": self.address}
        self.node = Node(tag, self.endpoint, sockets, scenario.world, scenario.network, self._reported)

    @property
    def address(self) -> Address:
        """Return its public address."""
        return f"192.0.{self._number}.{self._places + 1}", 40_000 + self._places

    @property
    def description(self) -> str:
        """Return its own description of its address: behind NAT always the same."""
        end = ChannelEnd(
            address=("10.0.0.5", 40_000) if self.is_behind_nat else self.address,
            connection=self.local_id,
            generation=self.generation,
        )
        text = SessionDescription(self.tag, 1, 1, end.address[0], (describe_end(end),)).encode()
        return text.decode()

    def change_address(self) -> None:
        """Change the address."""
        self._places += 1
        self.node.rebind({"data": self.address})

    def _reported(self, output: Output) -> None:
        match output:
            case MessageReceived(payload=payload):
                self.had.append(payload)
            case ConnectionFailed():
                self.failed = True


class RelayNode(RelayHost):
    """The relay's host, which keeps the responses to the proxy."""

    def __init__(self, scenario: RelayScenario) -> None:
        self.answers: list[bytes] = []
        super().__init__(RELAY_IP, PORTS, scenario.world, scenario.network)

    def _transmit(self, source: Address, destination: Address, data: bytes) -> None:
        if destination == PROXY:
            self.answers.append(data)
        else:
            super()._transmit(source, destination, data)


class RelayScenario(Scenario):
    """A world with two parties, a relay, and a proxy that sends commands, set up by the seed."""

    counted: ClassVar = {
        "messages": "messages",
        "moves": "announced moves",
        "rebindings": "others",
        "restarts": "relays killed",
        "learnt": "parties found elsewhere",
        "injected": "datagrams of strangers",
        "refused": "refused",
        "datagrams": "datagrams",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.moves = self.rebindings = self.restarts = self.injected = 0
        draw = self.world.random
        delay_s = draw.choice([0.005, 0.03, 0.1])
        self.network = Network(
            self.world,
            PathConditions(
                loss=draw.choice([0.0, 0.01, 0.05]),
                duplication=draw.choice([0.0, 0.05]),
                delay_min_s=delay_s,
                delay_max_s=delay_s * draw.choice([1.0, 1.5]),
                spike=draw.choice([0.0, 0.02]),
            ),
        )
        self.network.tap = self._check_datagram
        self.sealed = draw.random() < 0.7
        self.parties = Party(self, "a", 2), Party(self, "b", 3)
        self.relays = [RelayNode(self)]
        self._cookies = 0
        self._active = True

    def counts(self) -> dict[str, float]:
        figures = [node.relay.figures for node in self.relays]
        return {
            "messages": sum(len(party.had) for party in self.parties),
            "moves": self.moves,
            "rebindings": self.rebindings,
            "restarts": self.restarts,
            "learnt": sum(each.learnt for each in figures),
            "injected": self.injected,
            "refused": sum(each.unknown_source for each in figures),
            "datagrams": self.network.delivered,
        }

    def _play(self) -> None:
        world, draw = self.world, self.world.random
        self._set_up()
        for party in self.parties:
            for _ in range(draw.choice([0, 5, 40])):
                world.at(draw.uniform(0, ACTIVE_S), lambda party=party: self._send(party))  # type: ignore[misc]
        when = draw.uniform(2, 6)
        while when < ACTIVE_S:
            # One at a time, with time to heal: two simultaneous changes would need signalling.
            world.at(when, self._disturb)
            when += draw.uniform(6, 10)
        world.after(0.1, self._send_attack)
        world.run(ACTIVE_S)
        self._active = False
        self.network.conditions.loss = self.network.conditions.spike = 0.0
        world.run(ACTIVE_S + SETTLE_S)

    # Events --------------------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        """Set up the call, and open both ends of the connection."""
        keys = [self.world.random.randbytes(32) for _ in range(2)]
        self._agree(*self.parties)
        for number, (party, peer) in enumerate((self.parties, self.parties[::-1])):
            secrets = Secrets(sending=keys[number], receiving=keys[1 - number]) if self.sealed else None
            assert party.hears_from is not None
            opening = OpenConnection(party.local_id, peer.local_id, party.hears_from, peer.generation, secrets)
            party.node.feed([opening])

    def _send(self, party: Party) -> None:
        message = self.world.random.randbytes(self.world.random.choice([1, 100, 1_000, 5_000]))
        party.sent.append(message)
        party.node.feed([SendMessage(party.local_id, message)])

    def _disturb(self) -> None:
        party = self.world.random.choice(self.parties)
        kind = self.world.random.random()
        if kind < 0.2:
            self.restarts += 1
            self._restart(party)
        elif kind < 0.6 and party.is_behind_nat:
            self.rebindings += 1
            party.change_address()
        else:
            self.moves += 1
            party.change_address()
            party.generation += 1
            party.node.feed([MovedHere(party.local_id, party.generation)])
            self.world.after(self.world.random.uniform(0.01, 1.0), lambda: self._send_reinvite(party))

    def _restart(self, party: Party) -> None:
        """Restart the relay without its state; a party notices, and sends a new offer."""
        self.relays[-1].kill()
        self.relays.append(RelayNode(self))
        self.world.after(self.world.random.uniform(0.1, 3.0), lambda: self._send_reinvite(party))

    def _send_reinvite(self, party: Party) -> None:
        """Send a re-INVITE: the offer and its answer pass the relay."""
        peer = self.parties[party is self.parties[0]]
        self._agree(party, peer)
        for each, other in ((party, peer), (peer, party)):
            assert each.hears_from is not None
            each.node.feed([ChangePath(each.local_id, each.hears_from, other.generation)])

    def _agree(self, offering: Party, answering: Party) -> None:
        """Have the proxy pass an offer and its answer through the relay; each party learns its destination."""
        tags = {"call_id": CALL, "from_tag": offering.tag, "to_tag": answering.tag}
        answering.hears_from = self._described(ng.describe("offer", offering.description, **tags))
        offering.hears_from = self._described(ng.describe("answer", answering.description, **tags))

    def _described(self, command: ng.Fields) -> Address:
        reply = self._command(command)
        (medium,) = SessionDescription.parse(str(reply["sdp"]).encode()).media
        return medium.address, medium.port

    def _command(self, command: ng.Fields) -> ng.Fields:
        """Send a command; sometimes it is repeated, and must get the same response."""
        self._cookies += 1
        node, data = self.relays[-1], ng.write_command(b"%d" % self._cookies, command)
        for _ in range(self.world.random.choice([1, 1, 2])):
            node.feed([DatagramReceived(NG_SOCKET, PROXY, data)])
        if len(set(node.answers)) != 1:
            self.problems.append(f"{command['command']}: answered by {len(set(node.answers))} answers")
        reply = ng.read_reply(node.answers[0])[1]
        node.answers.clear()
        return reply

    def _send_attack(self) -> None:
        """Send a datagram of the attacker to a port of the relay, from its own address or a forged one."""
        if not self._active:
            return
        draw = self.world.random
        if ports := list(self.relays[-1].ports.values()):
            ids = draw.randbytes(16) if draw.random() < 0.8 else bytes(16)
            data = ids + bytes([draw.choice([1, 2, 3, 4])]) + draw.randbytes(draw.choice([0, 11, 16, 60, 1_000]))
            source = draw.choice([STRANGER, *(party.address for party in self.parties)])
            self.injected += 1
            self.network.carry(source, draw.choice(ports), data, 0.0)
        self.world.after(draw.expovariate(10.0), self._send_attack)

    def _check_datagram(self, source: Address, destination: Address, data: bytes) -> None:
        """Check that the relay only sends to where a party is, was, or says that it is."""
        if destination == STRANGER:
            self.problems.append(f"the stranger was sent {len(data)} bytes at {self.world.now:.3f}")

    # Checks --------------------------------------------------------------------------------------------------------

    def _check_promises(self) -> None:
        for party, peer in (self.parties, self.parties[::-1]):
            if party.failed:
                self.problems.append(f"{party.tag}: the connection failed")
            if party.had != peer.sent:
                self.problems.append(f"{party.tag}: had {len(party.had)} of {len(peer.sent)} messages, or not in order")
        node = self.relays[-1]
        self._command(ng.delete(call_id=CALL))
        if node.ports or node.relay.sides or node.relay.calls:
            self.problems.append("the relay has something left when the call is over")
        self.world.run(self.world.now + 120.0, done=lambda: not node.timers.keys)
        if node.timers.keys:
            self.problems.append("the relay does not come to rest")
