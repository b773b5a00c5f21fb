"""A small world for user agents: virtual time, a lossy network with addresses, a SIP server, owners that answer."""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from wanderbus.machine import (
    Address,
    CancelTimer,
    DatagramReceived,
    Input,
    Machine,
    Output,
    SendDatagram,
    SetTimer,
    TimerFired,
)
from wanderbus.mobility.checked_admission import checked
from wanderbus.mobility.messages import (
    AcceptOffer,
    AddressChanged,
    CreateSession,
    SessionOffered,
    Start,
    UpdateSession,
)
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.session import SIPCommunicationStatus, SIPSession
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.sip.message.message import Message, Request, parse_message
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.sip_server import SIPServer

SERVER: Address = ("10.0.0.1", 5060)
DOMAIN = "example.org"
DATA_PORT = 40_000

Report = TypeVar("Report", bound=Output)


class SeededRandom:
    """A RandomSource that repeats itself."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def password_of(user: str) -> str | None:
    """Return the password of any user with an account."""
    return f"secret of {user}" if user in ("alice", "bob", "broker") else None


def media_at(address: Address, port: int = DATA_PORT) -> MediaDescription:
    """Return a data channel of the host with the SIP address ``address``."""
    return MediaDescription(address=address[0], port=port)


class Node:
    """A machine at an address with its timers."""

    def __init__(self, world: World, machine: Machine, address: Address) -> None:
        self.world = world
        self.machine = machine
        self.address = address
        self.reports: list[Output] = []
        self.reported_at: list[float] = []
        self.timers: dict[Hashable, int] = {}

    def give(self, *inputs: Input) -> None:
        """Step the machine once and execute its outputs."""
        for output in self.machine.step(inputs, self.world.now):
            match output:
                case SendDatagram(destination=destination, data=data):
                    self.world.carry(self.address, destination, data)
                case SetTimer(key=key, at=at):
                    self.timers[key] = self.world.at(at, self._timer(key))
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case _:
                    self.reports.append(output)
                    self.reported_at.append(self.world.now)
                    self.noticed(output)

    def noticed(self, report: Output) -> None:
        """React to a report of the machine."""

    def all_of(self, kind: type[Report]) -> list[Report]:
        """Return the reports of one kind, in order."""
        return [report for report in self.reports if isinstance(report, kind)]

    def crash(self) -> None:
        """Vanish with all timers."""
        self.timers.clear()
        if self.world.nodes.get(self.address) is self:
            del self.world.nodes[self.address]

    def _timer(self, key: Hashable) -> Callable[[int], None]:
        def fire(number: int) -> None:
            if self.timers.get(key) == number:
                del self.timers[key]
                self.give(TimerFired(key))

        return fire


class Phone(Node):
    """A user agent and an owner that answers every offer at once with its present media."""

    def __init__(self, world: World, user: str, address: Address, **options: Any) -> None:
        self.user = user
        self.answers = True
        self.options = options
        self.agent = self._new_agent(world, address)
        super().__init__(world, self.agent, address)

    def _new_agent(self, world: World, address: Address) -> UserAgent:
        options = dict(self.options)
        properties = Properties(
            uri=f"{self.user}@{DOMAIN}",
            server=options.pop("server", SERVER),
            password=options.pop("password", password_of(self.user)),
            instance=f"<urn:uuid:{self.user}>",
            register_expires_s=options.pop("register_expires_s", 60),
            **options.pop("properties", {}),
        )
        if options.pop("authenticates", False):
            guard = LoginGuard(proxies=[SERVER[0]])
            authenticator = Authenticator(DOMAIN, password_of, world.random.token(16), guard=guard)
            options["admission"] = checked(authenticator)
        return UserAgent(properties, SeededRandom(f"{world.seed} {self.user} {world.now}"), contact=address, **options)

    def noticed(self, report: Output) -> None:
        if self.answers and isinstance(report, SessionOffered):
            self.give(AcceptOffer(report.id, media_at(self.address)))

    def start(self) -> None:
        self.give(Start())

    def call(self, user: str, id: str = "call") -> None:
        """Invite ``user`` into session ``id``."""
        self.give(CreateSession(id, f"sip:{user}@{DOMAIN}", media_at(self.address)))

    def move(self, host: str) -> None:
        """Lose the present address, get another, tell everybody (SPEC D-08)."""
        self.world.relocate(self, (host, self.address[1]))
        updates = [UpdateSession(id, media_at(self.address)) for id in self.agent.sessions]
        self.give(AddressChanged(self.address), *updates)

    def restart(self, *snapshots: bytes) -> None:
        """Restart at the same address with nothing but ``snapshots``; adopted sessions are updated."""
        self.timers.clear()
        self.machine = self.agent = self._new_agent(self.world, self.address)
        self.world.nodes[self.address] = self
        ids = [self.agent.adopt(snapshot) for snapshot in snapshots]
        self.give(Start(), *(UpdateSession(id, media_at(self.address)) for id in ids))

    def session(self, id: str = "call") -> SIPSession:
        return self.agent.sessions[id]

    def sends_to(self, peer: Phone, id: str = "call") -> bool:
        """Tell whether this side is CONNECTED and would send data where ``peer`` is."""
        session = self.agent.sessions.get(id)
        return (
            session is not None
            and session.communication is SIPCommunicationStatus.CONNECTED
            and session.remote_media is not None
            and session.remote_media.address == peer.address[0]
        )


class Sent:
    """One datagram on the wire, read."""

    def __init__(self, at: float, source: Address, destination: Address, data: bytes) -> None:
        self.at = at
        self.source = source
        self.destination = destination
        self.data = data

    @functools.cached_property
    def message(self) -> Message:
        return parse_message(self.data)

    @property
    def what(self) -> str:
        """The method, or the status and the method it answers."""
        if isinstance(self.message, Request):
            return self.message.method
        return f"{self.message.status} {self.message.cseq.method}"


class Fate(Protocol):
    def __call__(self, sent: Sent) -> bool: ...


class World:
    """Nodes by address, joined by a network that loses and delays datagrams from one seed."""

    def __init__(self, seed: int = 0, loss: float = 0.0, delay_s: float = 0.01) -> None:
        self.seed = seed
        self.now = 100.0
        self.loss = loss
        self.delay_s = delay_s
        self.random = SeededRandom(f"{seed} network")
        self.nodes: dict[Address, Node] = {}
        self.trace: list[Sent] = []
        self.loses: Fate = lambda sent: False
        """Further datagrams to lose, for tests that pick one."""
        self.duplication = 0.0
        """Part of the datagrams that arrive twice."""
        self.jitter = 0.5
        """Variation of a datagram's delay, as a fraction of it, in both directions."""
        self.damages: Callable[[bytes], bytes] = lambda data: data
        """Change of the bytes in transit."""
        self._numbers = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[int], None]]] = []
        self.server = self.add(Node(self, self._new_server(), SERVER))

    def _new_server(self, **options: Any) -> SIPServer:
        randomness = SeededRandom(f"{self.seed} server {self.now}")
        return SIPServer(DOMAIN, SERVER, password_of, randomness, b"key", **options)

    def restart_server(self, **options: Any) -> None:
        """Replace the SIP server by one with empty state."""
        self.server.crash()
        self.server = self.add(Node(self, self._new_server(**options), SERVER))

    def registered_at(self, user: str) -> list[str]:
        """Return the hosts where the server would look for ``user``."""
        assert isinstance(self.server.machine, SIPServer)
        contacts = self.server.machine.location.contacts(f"sip:{user}@{DOMAIN}", self.now)
        return [SIPUri.parse(contact).host for contact in contacts]

    def add(self, node: Node) -> Node:
        self.nodes[node.address] = node
        return node

    def phone(self, user: str, host: str, **options: Any) -> Phone:
        """Return a new user agent at ``host``, registered unless the server is unreachable."""
        phone = Phone(self, user, (host, 5060), **options)
        self.add(phone)
        phone.start()
        return phone

    def relocate(self, node: Node, address: Address) -> None:
        del self.nodes[node.address]
        node.address = address
        self.add(node)

    def at(self, when: float, action: Callable[[int], None]) -> int:
        number = next(self._numbers)
        heapq.heappush(self._agenda, (when, number, action))
        return number

    def carry(self, source: Address, destination: Address, data: bytes) -> None:
        sent = Sent(self.now, source, destination, data)
        self.trace.append(sent)
        if self.random.uniform(0, 1) < self.loss or self.loses(sent):
            return
        arriving = self.damages(data)

        def deliver(number: int) -> None:
            node = self.nodes.get(destination)
            if node is not None:
                node.give(DatagramReceived("sip", source, arriving))

        for _ in range(2 if self.random.uniform(0, 1) < self.duplication else 1):
            self.at(self.now + self.delay_s * self.random.uniform(1 - self.jitter, 1 + self.jitter), deliver)

    def run(self, seconds: float) -> None:
        """Advance the clock by ``seconds``."""
        self.run_until(lambda: False, seconds, must=False)

    def run_until(self, reached: Callable[[], object], within_s: float = 120.0, *, must: bool = True) -> float:
        """Advance the clock until ``reached``; return the elapsed time. Fails after ``within_s``."""
        began, deadline = self.now, self.now + within_s
        while not reached():
            if not self._agenda or self._agenda[0][0] > deadline:
                self.now = deadline
                assert not must, f"seed {self.seed}: not reached within {within_s} s"
                return within_s
            when, number, action = heapq.heappop(self._agenda)
            self.now = max(self.now, when)
            action(number)
        return self.now - began

    def sent(self, what: str, source: Node | None = None) -> list[Sent]:
        """Return the sent messages of one kind, such as "INVITE" or "200 BYE", by ``source`` if given."""
        return [sent for sent in self.trace if sent.what == what and source in (None, self.nodes.get(sent.source))]


Talk = tuple[World, Phone, Phone]
"""A world, the caller alice, and the callee broker."""


def established(seed: int = 0, loss: float = 0.0, delay_s: float = 0.01, duplication: float = 0.0) -> Talk:
    """Return a world where alice, on a device, called the broker, which authenticates; both are CONNECTED."""
    world = World(seed, loss, delay_s)
    world.duplication = duplication
    broker = world.phone("broker", "10.0.1.1", authenticates=True, register_expires_s=300)
    alice = world.phone("alice", "10.0.2.1", register_expires_s=300)
    world.run_until(lambda: bool(world.registered_at("broker") and world.registered_at("alice")))
    alice.call("broker")
    world.run_until(lambda: settled(alice, broker))
    return world, alice, broker


def settled(alice: Phone, broker: Phone, id: str = "call") -> bool:
    """Tell whether both sides are CONNECTED and would send to where the other is."""
    return alice.sends_to(broker, id) and broker.sends_to(alice, id)
