"""Lightweight clients and a server in one process: the core, the door and a broker, and connections that break.

A connection is two queues of bytes. Whatever is in them can be lost at any point, as in TCP: the beginning of a stream
arrives, and the rest does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.broker.desk import Desk
from wanderbus.access.light_door import LightDoor, is_light
from wanderbus.access.light_messages import LIGHT_SOCKET
from wanderbus.broker.messages import DevicesDoubted, LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.lightweight import Core
from wanderbus.machine import (
    CloseStream,
    Input,
    Output,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import LightLimits
from wanderbus.simulation.domains.multicast_network import DrawnRandom
from wanderbus.sip.authentication.digest_values import ha1
from wanderbus.transport import Consumed

DOMAIN = "example.org"
PASSWORDS = {"alice": "secret", "bob": "geheim"}
FINGERPRINT = bytes(range(32))


def secret_of(name: str) -> str | None:
    """Return HA1 of a user of the town."""
    return None if name not in PASSWORDS else ha1(name, DOMAIN, PASSWORDS[name])


class Wire:
    """One connection: the bytes on their way to each end; ``is_open`` until either end has closed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.to_server = bytearray()
        self.to_client = bytearray()
        self.is_open = True


class LightServer(Desk):
    """A broker with a door."""

    def __init__(self, seed: int = 0, limits: LightLimits | None = None, config: BrokerConfig | None = None) -> None:
        self.draw = Random(seed)
        self.wires: dict[int, Wire] = {}
        self.pending: list[Input] = []
        self.depth = 0
        self.limits = limits or LightLimits()
        self.outputs: list[Output] = []
        """Outputs of the door that are for its owner."""
        super().__init__(config or BrokerConfig(domain=DOMAIN))

    def start(self) -> None:
        """Boot: every connection ends."""
        for wire in self.wires.values():
            wire.is_open = False
        self.wires.clear()
        self.pending.clear()
        self.door = LightDoor(
            DrawnRandom(self.draw),
            DOMAIN,
            secret_of,
            fingerprint=FINGERPRINT,
            message_bytes_max=65_536,
            limits=self.limits,
            user_logins_per_s=1_000.0,
        )
        super().start()

    def open_door(self, *inputs: Input) -> None:
        """Step the door, and perform its outputs; what is for the broker follows after all that came before."""
        for output in self.door.step(inputs, self.now):  # type: ignore[arg-type]
            match output:
                case LinkOpened() | LinkClosed() | MessageArrived():
                    self.pending.append(output)
                case SendOnStream(connection=int(number), data=data) if number in self.wires:
                    self.wires[number].to_client += data
                case CloseStream(connection=number) if number in self.wires:
                    self.wires.pop(number).is_open = False
                case SetTimer(key=key, at=at):
                    self.timers["door", key] = at
                case _:
                    self.outputs.append(output)
        if self.depth == 0:
            self.pump()

    def pump(self) -> None:
        """Give the broker what waits for it."""
        while self.pending:
            pending, self.pending = self.pending, []
            self.give(*pending)

    def perform(self, outputs: Sequence[Output]) -> None:
        """Perform outputs of the broker; those for light links go to the door."""
        for_door: list[Input | Output] = []
        others: list[Output] = []
        for output in outputs:
            match output:
                case SendOnLink(link=link) | LinkDropped(link=link) if is_light(link):
                    for_door.append(output)
                case DevicesDoubted():
                    for_door.append(output)
                case _:
                    others.append(output)
        for_door += [LinkClosed(link, "closed") for link in self.broker.take_closed_links() if is_light(link)]
        for_door += [Consumed(link, count) for link, count in self.broker.take_done().items() if is_light(link)]
        self.depth += 1
        if for_door:
            self.open_door(*for_door)  # type: ignore[arg-type]
        super().perform(others)
        self.depth -= 1
        if self.depth == 0:
            self.pump()

    def later(self, seconds: float) -> None:
        """Advance the clock, and fire the timers that are due."""
        end = self.now + seconds
        while self.timers and min(self.timers.values()) <= end:
            key = min(self.timers, key=lambda each: self.timers[each])
            self.now = max(self.now, self.timers.pop(key))
            if isinstance(key, tuple) and key[0] == "door":
                self.open_door(TimerFired(key[1]))
            else:
                self.give(TimerFired(key))
        self.now = end


class LightDevice:
    """A lightweight client with its storage: ``stored`` is the state, ``got`` what the application has processed."""

    numbers = 0

    def __init__(self, server: LightServer, user: str, seed: int = 0, window_bytes: int = 16_384) -> None:
        self.server = server
        self.user = user
        self.draw = Random(seed)
        self.window_bytes = window_bytes
        self.wanted: list[tuple[str, str]] = []
        self.stored = b""
        self.got: list[object] = []
        self.reports: list[tuple[object, ...]] = []
        self.wire: Wire | None = None
        self.boot()

    def boot(self) -> None:
        """Begin a life from the stored state; everything in memory is lost."""
        self.cut()
        self.core = Core(
            self.user,
            PASSWORDS[self.user],
            "device",
            self.draw.randbytes,
            state=self.stored,
            window_bytes=self.window_bytes,
        )
        for subject, expression in self.wanted:
            self.core.subscribe(subject, expression, self.server.now)

    def want(self, subject: str, expression: str = "") -> None:
        """Subscribe now and in each later life."""
        self.wanted.append((subject, expression))
        self.core.subscribe(subject, expression, self.server.now)

    def publish(self, n: int, subject: str = "Trade") -> None:
        """Publish an event; the state is stored before it is sent."""
        self.core.publish(subject, {"N": n}, None, self.server.now)
        self.stored = self.core.state

    def cut(self) -> None:
        """Lose the connection, with all that is on its way to the client."""
        wire, self.wire = self.wire, None
        if wire is not None:
            if wire.is_open:
                wire.is_open = False
                self.server.wires.pop(wire.number, None)
                self.server.open_door(StreamClosed(LIGHT_SOCKET, wire.number, "reset"))
            self.core.closed(self.server.now)

    def connect(self) -> None:
        """Open a connection."""
        LightDevice.numbers += 1
        self.wire = self.server.wires[LightDevice.numbers] = Wire(LightDevice.numbers)
        self.core.opened(FINGERPRINT, self.server.now)
        self.collect()

    def collect(self) -> None:
        """Take the outputs of the core."""
        for output in self.core.take():
            if output[0] == "send" and self.wire is not None:
                self.wire.to_server += output[1]
            else:
                self.reports.append(output)
                if output[0] == "close":
                    self.cut()

    def move(self, bytes_max: int | None = None) -> bool:
        """Carry bytes in both directions, at most so many; return whether there were any."""
        self.collect()
        if (wire := self.wire) is None:
            return False
        up, wire.to_server[:bytes_max] = bytes(wire.to_server[:bytes_max]), b""
        if up and wire.is_open:
            source = ("192.0.2.7", 40_000)
            self.server.open_door(StreamReceived(LIGHT_SOCKET, wire.number, source, up, "TLS"))
        down, wire.to_client[:bytes_max] = bytes(wire.to_client[:bytes_max]), b""
        if down:
            self.core.data(down, self.server.now)
        self.collect()
        if not wire.is_open and not wire.to_client:
            self.cut()
        return bool(up or down)

    def process(self, items_max: int = 1_000) -> None:
        """Process items as an application does: it stores the state with its results, and then acknowledges."""
        for _ in range(items_max):
            if (item := self.core.next_item(self.server.now)) is None:
                break
            self.got.append(f"{item.lost} lost: {item.reason}" if item.lost else item.attributes["N"])
        self.stored = self.core.state
        self.core.ack(self.server.now)
        self.collect()

    def settle(self) -> None:
        """Connect, and carry everything until nothing is left."""
        for _ in range(1_000):
            if self.wire is None and self.core.connect_at <= self.server.now:
                self.connect()
            moved = self.move()
            self.process()
            self.core.tick(self.server.now)
            self.collect()
            moved = moved or bool(self.wire and self.wire.to_server)
            if not moved and self.wire is not None and not self.core.unanswered:
                return
            if not moved:
                self.server.later(0.25)
        raise AssertionError("the client does not settle")
