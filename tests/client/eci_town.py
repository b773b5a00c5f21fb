"""A small world whose server also serves the original ECI, and agents of the original ECI."""

from __future__ import annotations

from typing import Any

from tests.client.reports import Reporting
from wanderbus import protocol
from wanderbus.access.access_server import AccessServer
from wanderbus.access.baseline import Baseline
from wanderbus.client.machine.baseline import ECI_SOCKET, EciAgentMachine
from wanderbus.client.machine.messages import (
    AgentProperties,
    AskBroker,
    Connect,
    Moved,
    PublishEvent,
    PublishSettled,
    RequestSettled,
)
from wanderbus.event import Event
from wanderbus.machine import Address
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.protocol.eci_address import user_at
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.server import ECI_ADDRESS, SimulatedServer
from wanderbus.simulation.world import World
from wanderbus.subscription import Restriction, Subscription

SUBJECT = "Trade"


class EciTown:
    """A world with a running server; ``sent`` has every datagram of the original ECI, with its source."""

    def __init__(
        self, conditions: PathConditions | None = None, *, seed: int = 1, eci: BaselineConfig | None = None
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world, PathConditions(delay_min_s=0.005, delay_max_s=0.005))
        self.sent: list[tuple[Address, Address, bytes]] = []
        self._carry = self.network.send
        self.network.send = self._send  # type: ignore[method-assign]
        self.server = SimulatedServer(
            self.world, self.network, BrokerConfig(), RudpConfig(), eci=eci or BaselineConfig()
        )
        self.server.start()
        self.run(1.0)
        if conditions is not None:
            self.network.conditions = conditions

    @property
    def baseline(self) -> Baseline:
        """The server's side of the original ECI, as it lives."""
        assert self.server._access is not None
        machine = self.server._access.machine
        assert isinstance(machine, AccessServer)
        assert machine._baseline is not None
        return machine._baseline

    def run(self, seconds: float) -> None:
        """Advance the clock."""
        end = self.world.now + seconds
        self.world.at(end, lambda: None)
        self.world.run(end)

    def restart(self) -> None:
        """Crash the server, and start it again."""
        self.server.crash(lose_rows=False)
        self.run(0.5)
        self.server.start()
        self.run(0.5)

    def to(self, address: Address) -> list[bytes]:
        """Datagrams that were sent to ``address``."""
        return [data for _, destination, data in self.sent if destination == address]

    def _send(self, source: Address, destination: Address, data: bytes) -> None:
        if ECI_ADDRESS in (source, destination):
            self.sent.append((source, destination, data))
        self._carry(source, destination, data)


class Pager(Reporting):
    """An agent of the original ECI at one address, with the reports that it made."""

    def __init__(
        self, town: EciTown, ip: str = "10.1.0.1", *, port: int = 40_000, epoch: int = 1, keep: bool = True
    ) -> None:
        super().__init__()
        self.town = town
        self.address: Address = (ip, port)
        self._requests = 0
        self._published = 0
        properties = AgentProperties(
            uri="eci://broker", server=ECI_ADDRESS, broker="eci://broker", device="", epoch=epoch, keep=keep
        )
        self.agent = EciAgentMachine(properties, data=self.address)
        self.node = Node(
            f"pager {ip}", self.agent, {ECI_SOCKET: self.address}, town.world, town.network, self.reports.append
        )

    @property
    def user(self) -> str:
        """The user that this is to the broker."""
        return user_at(self.address)

    def connect(self) -> Pager:
        self.node.feed([Connect()])
        self.town.run(0.1)
        return self

    def ask(self, request: Any, *, wait_s: float = 0.1) -> RequestSettled:
        """Make a request and return how it was settled."""
        self.node.feed([AskBroker(request, reads=isinstance(request, protocol.Subscribe))])
        self.town.run(wait_s)
        return self.all_of(RequestSettled)[-1]

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def subscribe(self, expression: str = "", *restrictions: Restriction) -> Subscription:
        request = protocol.Subscribe(self.next_request(), SUBJECT, expression, None, restrictions, False)
        settled = self.ask(request)
        assert settled.refusal is None, settled.refusal
        return settled.subscriptions[0]

    def publish(self, *values: int) -> None:
        for value in values:
            self._published += 1
            self.node.feed([PublishEvent(self._published, protocol.encode_event(Event(SUBJECT, {"N": value})))])

    def move(self, ip: str) -> None:
        self.address = (ip, self.address[1])
        self.node.rebind({ECI_SOCKET: self.address})
        self.node.feed([Moved(self.address, self.address)])

    @property
    def accepted(self) -> list[int]:
        """The numbers of the publishes that were acknowledged."""
        return [settled.number for settled in self.all_of(PublishSettled) if settled.id is not None]
