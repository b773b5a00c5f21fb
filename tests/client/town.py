"""A small world with the real server machines and agents; all datagrams and reports are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.client.reports import Reporting
from wanderbus import protocol
from wanderbus.access.access_server import AccessServer
from wanderbus.client.machine.core import DATA_SOCKET, SIP_SOCKET, STREAM_SOCKET, AgentMachine
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AskBroker,
    Connect,
    ItemArrived,
    Moved,
    PublishEvent,
    RequestSettled,
)
from wanderbus.errors import SIPParseError
from wanderbus.event import Event, Position
from wanderbus.machine import Address, Output
from wanderbus.mobility.session.session import RemoteMediaStatus
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.server import BROKER_URI, DOMAIN, SERVER_ADDRESS, SERVER_IP, SimulatedServer, password_of
from wanderbus.simulation.status_watch import StatusWatch
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.message.message import Message, Request, parse_message

DATA_ADDRESS: Address = (SERVER_IP, 5071)
STREAM_ADDRESS: Address = (SERVER_IP, 5072)
SIP_PORTS = (5060, 5070)


class Sent(NamedTuple):
    """A datagram as it left."""

    at: float
    source: Address
    destination: Address
    data: bytes

    @property
    def message(self) -> Message | None:
        """The SIP message in it, if it is one."""
        try:
            return parse_message(self.data)
        except SIPParseError:
            return None

    @property
    def method(self) -> str | None:
        """The method, of a SIP request."""
        message = self.message
        return message.method if isinstance(message, Request) else None


class Town:
    """A world with a running server; datagrams to the addresses in ``blocked`` are lost."""

    def __init__(
        self,
        conditions: PathConditions | None = None,
        *,
        seed: int = 1,
        rudp: RudpConfig | None = None,
        encryption: bool = True,
        broker: BrokerConfig | None = None,
        relays: Sequence[Address] = (),
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world, conditions or PathConditions(delay_min_s=0.005, delay_max_s=0.005))
        self.rudp = rudp or RudpConfig()
        self.sent: list[Sent] = []
        self.blocked: set[Address] = set()
        self._carry = self.network.send
        self.network.send = self._send  # type: ignore[method-assign]
        self.server = SimulatedServer(
            self.world, self.network, broker or BrokerConfig(), self.rudp, encryption=encryption, relays=relays
        )
        self.phones: list[Phone] = []
        self.watch = StatusWatch(
            lambda: [(phone.uri, phone.agent, ["DISCONNECTED", *phone.statuses][-1]) for phone in self.phones],
            lambda: self.server.access,
        )
        self.world.on_step = lambda: self.watch.look(self.world.now)
        self.server.start()
        self.run(1.0)

    @property
    def access(self) -> AccessServer:
        """The live access server."""
        assert self.server._access is not None
        machine = self.server._access.machine
        assert isinstance(machine, AccessServer)
        return machine

    def run(self, seconds: float) -> None:
        """Advance the clock; check all the while that agents, users and media have the same status (SPEC E-07)."""
        end = self.world.now + seconds
        self.world.at(end, lambda: None)
        self.world.run(end)
        assert self.watch.problems == []

    def since(self, at: float) -> list[Sent]:
        return [sent for sent in self.sent if sent.at >= at]

    def _send(self, source: Address, destination: Address, data: bytes) -> None:
        self.sent.append(Sent(self.world.now, source, destination, data))
        if destination not in self.blocked and source not in self.blocked:
            self._carry(source, destination, data)


class Phone(Reporting):
    """An agent of ``name`` in a town, with its reports; it acknowledges all notifications unless ``takes`` is false."""

    def __init__(self, town: Town, name: str = "alice", *, number: int = 1, takes: bool = True, **options: Any) -> None:
        super().__init__()
        self.town = town
        self.uri = f"sip:{name}@{DOMAIN}"
        self.ip = f"10.{number}.0.1"
        self.takes = takes
        self._requests = 0
        self._published = 0
        defaults: dict[str, Any] = {"device": f"{number:032x}", "epoch": number, "password": password_of(name)}
        self.properties = AgentProperties(
            uri=self.uri, **({"server": SERVER_ADDRESS, "broker": BROKER_URI} | defaults | options)
        )
        sip, data = self.addresses()
        self.agent = AgentMachine(self.properties, SeededRandom(town.world), sip=sip, data=data, rudp=town.rudp)
        self.node = Node(
            name, self.agent, self.sockets(), town.world, town.network, self._report, streams=self.streams()
        )
        town.phones.append(self)

    def addresses(self) -> tuple[Address, Address]:
        return (self.ip, 5060), (self.ip, 40_000)

    def sockets(self) -> dict[str, Address]:
        sip, data = self.addresses()
        return {SIP_SOCKET: sip, DATA_SOCKET: data}

    def streams(self) -> dict[str, Address]:
        return {STREAM_SOCKET: self.addresses()[1]}

    def _report(self, output: Output) -> None:
        self.reports.append(output)
        if self.takes and isinstance(output, ItemArrived):
            taken = [Acknowledge(each, output.item.position) for each in output.subscriptions]
            self.town.world.after(0.0, lambda: self.node.feed(taken))

    def acknowledgement(self, number: int) -> Acknowledge:
        """Acknowledgement of everything up to a number, of the subscription that it reads."""
        (subscription,) = {each for arrived in self.all_of(ItemArrived) for each in arrived.subscriptions}
        return Acknowledge(subscription, Position(self.position.epoch, number))

    def connect(self) -> Phone:
        self.node.feed([Connect()])
        self.town.run(1.0)
        return self

    def subscribe(self, expression: str = "") -> None:
        self._requests += 1
        ask = protocol.Subscribe(self._requests, "Trade", expression, None, (), False)
        self.node.feed([AskBroker(ask, reads=True)])
        self.town.run(0.5)
        assert self.all_of(RequestSettled)[-1].refusal is None

    def publish(self, n: int) -> None:
        self._published += 1
        self.node.feed([PublishEvent(self._published, protocol.encode_event(Event("Trade", {"N": n})))])

    def move(self, ip: str) -> None:
        self.ip = ip
        self.node.rebind(self.sockets(), self.streams())
        self.node.feed([Moved(*self.addresses())])

    @property
    def media(self) -> list[RemoteMediaStatus]:
        """Remote Media Status of each of the agent's SIP sessions."""
        return [session.media_status for session in self.agent._user_agent.sessions.values()]

    @property
    def position(self) -> Position:
        """The position of the last item that arrived."""
        return self.all_of(ItemArrived)[-1].item.position


def connected(town: Town, name: str = "alice", **options: Any) -> Phone:
    """A phone that is connected and subscribed to everything."""
    phone = Phone(town, name, **options).connect()
    assert phone.statuses == ["CONNECTED"]
    phone.subscribe()
    return phone
