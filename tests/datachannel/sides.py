"""Two sides of a data channel in a simulated world, and the offers and answers between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from wanderbus.datachannel import DATA_SOCKET, STREAM_SOCKET, DataChannel, Parties, Transports, channel_secret
from wanderbus.datachannel.description import Protocol
from wanderbus.machine import Address, Input, Output
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.authentication.digest import ha1
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.transport import MessageReceived, SendMessage

AGENT: Address = ("10.0.0.1", 40_000)
BROKER: Address = ("10.0.0.2", 40_000)
FINGERPRINT = bytes(range(100, 132))

BOTH = Parties(
    role="agent",
    agent="sip:alice@sim.test",
    broker="sip:broker@sim.test",
    dialog="call-1",
    secret=channel_secret(ha1("alice", "sim.test", "secret")),
)


class Side:
    """One side: the machine under its node, and its reports."""

    def __init__(
        self,
        world: World,
        network: Network,
        address: Address,
        parties: Parties,
        protocol: Protocol,
        *,
        encryption: bool,
    ) -> None:
        self.world = world
        self.address = address
        self.reports: list[Output] = []
        fingerprint = FINGERPRINT if parties.role == "broker" and encryption else b""
        self.transports = Transports(
            SeededRandom(world),
            rudp_config=RudpConfig(),
            tcp_config=TcpConfig(),
            reset_key=bytes(32),
            fingerprint=fingerprint,
        )
        self.channel = DataChannel(self.transports, parties, encryption=encryption, protocol=protocol)
        self.node = Node("side", self, {}, world, network, self.reports.append, fingerprint=fingerprint)
        self.bind()

    def step(self, inputs: Iterable[Input], now: float) -> Sequence[Output]:
        return self.transports.step(inputs, now)

    def bind(self) -> None:
        self.node.rebind({DATA_SOCKET: self.address}, {STREAM_SOCKET: self.address})

    def ask(self, inputs: Sequence[Input]) -> None:
        if inputs:
            self.node.perform(self.step(inputs, self.world.now))

    def describe(self) -> MediaDescription:
        return self.channel.describe(self.address)

    def offer(self) -> MediaDescription:
        self.ask(self.channel.offer())
        return self.describe()

    def accept(self, media: MediaDescription) -> bool:
        opened, inputs = self.channel.accept(self.channel.read(media, self.address[0]))
        self.ask(inputs)
        return opened

    def agreed(self, media: MediaDescription) -> bool:
        opened, inputs = self.channel.agreed(self.channel.read(media, self.address[0]))
        self.ask(inputs)
        return opened

    def move(self, ip: str) -> None:
        self.address = (ip, self.address[1])
        self.bind()
        self.ask(self.channel.moved())

    def send(self, *payloads: bytes) -> None:
        self.node.feed([SendMessage(self.channel.local, payload) for payload in payloads])

    @property
    def received(self) -> list[bytes]:
        return [report.payload for report in self.reports if isinstance(report, MessageReceived)]

    def reported(self, kind: type[Output]) -> bool:
        return any(isinstance(report, kind) for report in self.reports)


class Call:
    """An agent and a broker that use ``protocol``."""

    def __init__(
        self, protocol: Protocol = "UDP", *, encryption: bool = True, seed: int = 1, broker: Parties | None = None
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world, PathConditions(delay_min_s=0.005, delay_max_s=0.005))
        theirs = broker or msgspec.structs.replace(BOTH, role="broker")
        self.agent = Side(self.world, self.network, AGENT, BOTH, protocol, encryption=encryption)
        self.broker = Side(self.world, self.network, BROKER, theirs, protocol, encryption=encryption)

    def sides(self, offerer: str) -> tuple[Side, Side]:
        return (self.agent, self.broker) if offerer == "agent" else (self.broker, self.agent)

    def agree(self, offerer: str = "agent", *, lost_answer: bool = False) -> tuple[bool | None, bool]:
        """Offer and answer once; whether each of offerer and answerer thinks that the connection is new."""
        one, other = self.sides(offerer)
        answerer_new = other.accept(one.offer())
        offerer_new = None if lost_answer else one.agreed(other.describe())
        self.run(0.2)
        return offerer_new, answerer_new

    def run(self, seconds: float) -> None:
        end = self.world.now + seconds
        self.world.at(end, lambda: None)
        self.world.run(end)

    def delivered(self, sender: str, *payloads: bytes) -> list[bytes]:
        """Send from one side; return the messages that the other side received."""
        one, other = self.sides(sender)
        before = len(other.received)
        one.send(*payloads)
        self.run(1.0)
        return other.received[before:]


def changed(media: MediaDescription, **attributes: str | None) -> MediaDescription:
    """``media`` with these attributes (``_`` for ``-``) changed, or taken out where None."""
    wanted: dict[str, Any] = {name.replace("_", "-"): value for name, value in attributes.items()}
    kept = [(name, wanted.get(name, value)) for name, value in media.attributes if wanted.get(name, "") is not None]
    added = [(n, v) for n, v in wanted.items() if v is not None and n not in dict(media.attributes)]
    return msgspec.structs.replace(media, attributes=tuple(kept + added))
