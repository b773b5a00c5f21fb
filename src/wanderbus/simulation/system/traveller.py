"""Simulated user: an agent machine and an application that commits what it consumes (DESIGN 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.core import DATA_SOCKET, SIP_SOCKET, STREAM_SOCKET, AgentMachine
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AgentStatusChanged,
    AskBroker,
    Connect,
    ConnectRefused,
    DataTransport,
    ItemArrived,
    Moved,
    PublishEvent,
    PublishSettled,
    RequestSettled,
)
from wanderbus.event import Event, EventId, Gap, Notification, Position, Value
from wanderbus.machine import Address, Output
from wanderbus.parameters.transports import RudpConfig
from wanderbus.simulation.host import SimulatedHost
from wanderbus.simulation.network import Network
from wanderbus.simulation.node import Node, Wire
from wanderbus.simulation.server import DOMAIN, SERVER_ADDRESS, broker_of, password_of
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.message.targets import Transport
from wanderbus.subscription import PATTERN, Since

SUBJECT = "Trade"


def is_pattern(expression: str) -> bool:
    """Return whether a traveller's expression is a pattern."""
    return expression.startswith("pattern ")


class Committed(msgspec.Struct):
    """The application's own disk: by subscription, the committed items in order, and the last position.

    The key of a subscription is its place among the expressions, from 1.
    """

    items: dict[int, list[Notification | Gap]] = msgspec.field(default_factory=dict)
    positions: dict[int, Position] = msgspec.field(default_factory=dict)


class Traveller(SimulatedHost[AgentMachine]):
    """One user's device.

    ``resumes``: whether the application commits the position with its results. ``think_s_max``: the longest time that
    it processes a notification. ``transport``: that of its signalling. ``domain``: the user's home.
    """

    def __init__(
        self,
        name: str,
        number: int,
        world: World,
        network: Network,
        rudp: RudpConfig,
        *,
        expressions: Sequence[str],
        resumes: bool,
        think_s_max: float,
        encryption: bool = True,
        data_transport: DataTransport = "AUTO",
        transport: Transport = "UDP",
        domain: str = DOMAIN,
    ) -> None:
        super().__init__(AgentMachine)
        self.name = name
        self.domain = domain
        self.uri = f"sip:{name}@{domain}"
        self.expressions = expressions
        self.resumes = resumes
        self._think_s_max = think_s_max
        self._encryption = encryption
        self._data_transport: DataTransport = data_transport
        self.transport: Transport = transport
        self.committed = Committed()
        self.late: set[int] = set()
        """Places of the subscriptions that begin later, by :meth:`begin`."""
        self.since: dict[int, Since] = {}
        """Points in the past at which subscriptions begin, by place."""
        self.accepted: dict[int, EventId] = {}
        self.submitted = 0
        self.subscribed = False
        self.problems: list[str] = []
        self.on_arrival: Callable[[Notification | Gap], None] = lambda item: None
        """Called with every item when it reaches the device, before the application consumes it."""
        self._world = world
        self._network = network
        self._rudp = rudp
        self._random = SeededRandom(world)
        self._device = self._random.token(16).hex()
        self._number = number
        self._moves = 0
        self._life = 0
        self._status = "DISCONNECTED"
        self._in_hand: list[tuple[Notification | Gap, str]] = []
        self._requests: dict[str, int] = {}
        """Place of each subscription among the expressions, by id."""
        self._asked: set[int] = set()
        self._published_in_life = 0
        self._unsettled: dict[int, int] = {}

    @property
    def ip(self) -> str:
        """Return the present address."""
        return f"10.{self._number}.{self._moves // 250}.{self._moves % 250 + 1}"

    @property
    def wire(self) -> Wire:
        """Return the link of the device's datagrams."""
        return self._network

    @property
    def connected(self) -> bool:
        """Return the ECIAgent Status."""
        return self.running and self.machine.connected

    @property
    def way(self) -> str:
        """Return the transport of the agent's data channel."""
        return self.machine.data_path

    @property
    def watched(self) -> tuple[str, AgentMachine, str] | None:
        """Return the statuses to compare (SPEC E-07); None while not running."""
        return (self.name, self.machine, self._status) if self.running else None

    @property
    def settled(self) -> bool:
        """Return whether no work of this application is in progress."""
        return self.is_answered and not self._in_hand

    @property
    def is_answered(self) -> bool:
        """Return whether the broker has answered everything; the application may still process what arrived."""
        return self.running and self.subscribed and not self._unsettled

    @property
    def is_updating(self) -> bool:
        """Return whether its agent waits for the response to an update of its session."""
        return self.machine.is_updating

    @property
    def sends_to(self) -> str | None:
        """The IP address to which its agent sends data; None if none is agreed on."""
        address = self.machine.sends_to
        return None if address is None else address[0]

    def start(self) -> None:
        """Start the agent process and subscribe (again)."""
        self._life += 1
        sockets = self._addresses()
        agent = AgentMachine(
            self._properties(), self._random, sip=sockets[SIP_SOCKET], data=sockets[DATA_SOCKET], rudp=self._rudp
        )
        self.node = Node(
            self.name,
            agent,
            sockets,
            self._world,
            self._network,
            self._report,
            streams=self._stream_addresses(sockets),
            wire=self.wire,
        )
        self._status = "DISCONNECTED"
        self._published_in_life = 0
        self._unsettled.clear()
        self._in_hand.clear()
        self._asked = set(range(1, len(self.expressions) + 1)) - self.late
        self.feed(Connect(), *(self._subscribe(request) for request in self._asked))

    def _properties(self) -> AgentProperties:
        """Return the properties of the agent in a new life."""
        return AgentProperties(
            uri=self.uri,
            server=SERVER_ADDRESS,
            broker=broker_of(self.domain),
            device=self._device,
            epoch=int.from_bytes(self._random.token(7), "big"),
            password=password_of(self.name),
            encryption=self._encryption,
            data_transport=self._data_transport,
            transport=self.transport,
        )

    def _subscribe(self, request: int) -> AskBroker:
        """Request a subscription: an existing one continues from its committed position."""
        expression = self.expressions[request - 1]
        since = self.since.get(request)
        position = self.committed.positions.get(request) if self.resumes else None
        subject, language = ("", PATTERN) if is_pattern(expression) else (SUBJECT, "eci")
        wanted = protocol.Subscribe(
            request, subject, expression, None, (), False, language=language, resume=position, since=since
        )
        return AskBroker(wanted, reads=True)

    def begin(self, place: int, since: Since) -> None:
        """Subscribe to a late expression, from a point in the past on."""
        self.late.discard(place)
        self.since[place] = since
        if self.running:
            self._asked.add(place)
            self.subscribed = False
            self.feed(self._subscribe(place))

    def move(self) -> None:
        """Change the device's address: the old one is lost at once."""
        self._moves += 1
        if self.running:
            self.node.wire = self.wire
            addresses = self._addresses()
            self.node.rebind(addresses, self._stream_addresses(addresses))
            self.feed(Moved(addresses[SIP_SOCKET], addresses[DATA_SOCKET]))

    def publish(self, attributes: Mapping[str, Value]) -> None:
        """Publish an event whose ``Uid`` is unique in the world."""
        self._published_in_life += 1
        self.submitted += 1
        uid = self._number * 1_000_000 + self.submitted
        self._unsettled[self._published_in_life] = uid
        event = protocol.encode_event(Event(SUBJECT, {**attributes, "Uid": uid}))
        self.feed(PublishEvent(self._published_in_life, event))

    def _addresses(self) -> dict[str, Address]:
        return {SIP_SOCKET: (self.ip, 5060), DATA_SOCKET: (self.ip, 40_000 + self._life)}

    def _stream_addresses(self, addresses: Mapping[str, Address]) -> dict[str, Address]:
        """Return the addresses for streams; for signalling an agent opens connections and accepts none."""
        signalling = {SIP_SOCKET: (addresses[SIP_SOCKET][0], 0)} if self.transport != "UDP" else {}
        return {STREAM_SOCKET: addresses[DATA_SOCKET], **signalling}

    def _report(self, output: Output) -> None:
        match output:
            case ItemArrived(item=item, subscriptions=subscriptions):
                self.on_arrival(item)
                self._in_hand += [(item, subscription) for subscription in subscriptions]
                if len(self._in_hand) == len(subscriptions):
                    self._process_next()
            case PublishSettled(number=number, id=identity):
                uid = self._unsettled.pop(number)
                if identity is None:
                    self.problems.append(f"publish {uid} was refused")
                else:
                    self.accepted[uid] = identity
            case RequestSettled(request=request, subscriptions=subscriptions, refusal=refusal):
                self._asked.discard(request)
                self._requests.update((subscription.id, request) for subscription in subscriptions)
                self.subscribed = not self._asked
                if refusal:
                    self.problems.append(f"subscribe was refused: {refusal.reason}")
            case ConnectRefused(status=status, reason=reason):
                self.problems.append(f"refused with {status}: {reason}")
            case AgentStatusChanged(status=status):
                self._status = status

    def _process_next(self) -> None:
        """Process the first waiting item, commit its result, and request the next."""
        life = self._life

        def commit() -> None:
            if not self.running or life != self._life:
                return
            item, subscription = self._in_hand.pop(0)
            request = self._requests[subscription]
            self.committed.items.setdefault(request, []).append(item)
            self.committed.positions[request] = item.position
            self.feed(Acknowledge(subscription, item.position))
            if self._in_hand:
                self._process_next()

        self._world.after(self._world.random.uniform(0.0, self._think_s_max), commit)
