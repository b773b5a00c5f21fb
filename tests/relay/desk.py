"""Helper that gives commands to a relay without a socket, and keeps its outputs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from wanderbus.datachannel import ChannelEnd, describe_end
from wanderbus.machine import Address, ClockRead, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.refusals import Limited
from wanderbus.relay import NG_SOCKET, ClosePort, OpenPort, PortOpened, PortRefused, Relay, RelayLimits, Side, ng
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription

PROXY: Address = ("10.0.0.1", 5_000)
RELAY = "198.51.100.1"
A_ID, B_ID = 0x1111111111111111, 0x2222222222222222
A_HOME, B_HOME = ("192.0.2.10", 4_000), ("192.0.2.20", 5_000)


class SeededRandom:
    """The same ports every time."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def sdp(
    address: Address,
    connection: int | None = A_ID,
    *,
    generation: int = 0,
    protocol: Any = "UDP",
    setup: str = "",
    more: Sequence[MediaDescription] = (),
) -> str:
    """A description with one data channel; one of another program where there is no connection id."""
    if connection is None:
        medium = MediaDescription(address=address[0], port=address[1], formats=("x-other",))
    else:
        end = ChannelEnd(address=address, connection=connection, generation=generation, protocol=protocol, setup=setup)
        medium = describe_end(end)
    return SessionDescription("-", 1, 1, address[0], (medium, *more)).encode().decode()


def packet(destination: int, payload: bytes = b"payload", *, kind: int = 1, generation: int = 0) -> bytes:
    """A packet of reliable UDP, as far as a relay looks at it: written from the format, not by ``rudp``."""
    header = destination.to_bytes(8, "big") + bytes(8) + bytes([kind, 0]) + generation.to_bytes(2, "big") + bytes(8)
    return header + payload


class Desk:
    """Gives commands to one relay and opens its ports, but for those in ``taken``."""

    def __init__(self, **more: Any) -> None:
        given: dict[str, Any] = {"address": RELAY, "ports": range(30_000, 30_100), **more}
        if isinstance(limits := given.get("limits"), dict):
            given["limits"] = RelayLimits(**limits)
        self.relay = Relay(SeededRandom(), **given)
        self.now = 1.0
        self.taken: set[int] = set()
        self.open: dict[int, Side] = {}
        self.closed: list[int] = []
        self.limited: list[Limited] = []
        self.timers: dict[Any, float] = {}
        self._cookies = itertools.count(1)

    def give(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Give a command; return its answer, which has to be the only one."""
        (answer,) = self.datagram(ng.write_command(b"c%d" % next(self._cookies), fields))
        return ng.read_reply(answer)[1]

    def datagram(self, data: bytes, source: Address = PROXY) -> list[bytes]:
        """Let a datagram with a command arrive; return the responses."""
        return self.step(ClockRead(1_700_000_000_500_000), DatagramReceived(NG_SOCKET, source, data))

    def step(self, *inputs: Input) -> list[bytes]:
        """Step the relay with these inputs, and execute its outputs until it has no more."""
        answers: list[bytes] = []
        outputs: list[Output] = self.relay.step(inputs, self.now)
        while outputs:
            match outputs.pop(0):
                case SendDatagram(socket=name, data=data) if name == NG_SOCKET:
                    answers.append(data)
                case OpenPort(side=side, port=port):
                    opened = port not in self.taken
                    if opened:
                        assert port not in self.open
                        self.open[port] = side
                    outputs += self.relay.step([(PortOpened if opened else PortRefused)(side, port)], self.now)
                case ClosePort(port=port):
                    self.open.pop(port, None)
                    self.closed.append(port)
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case Limited() as limited:
                    self.limited.append(limited)
        return answers

    def sleep(self, seconds: float) -> None:
        """Advance the clock, and fire the timers that are due."""
        until = self.now + seconds
        while self.timers and (due := min(self.timers.items(), key=lambda timer: timer[1]))[1] <= until:
            self.now = due[1]
            del self.timers[due[0]]
            self.step(TimerFired(due[0]))
        self.now = until

    def offer(self, text: str, call: str = "call", tag: str = "a", **more: Any) -> dict[str, Any]:
        return self.give(ng.describe("offer", text, call_id=call, from_tag=tag, **more))

    def answer(self, text: str, call: str = "call", tag: str = "a", to: str = "b", **more: Any) -> dict[str, Any]:
        return self.give(ng.describe("answer", text, call_id=call, from_tag=tag, to_tag=to, **more))

    def delete(self, call: str = "call", **more: Any) -> dict[str, Any]:
        return self.give(ng.delete(call_id=call, **more))

    def call(self, a: str = "", b: str = "", **more: Any) -> tuple[Side, Side]:
        """Agree on a call of one stream; return the sides of A and of B."""
        shown_to_b = medium(self.offer(a or sdp(A_HOME, A_ID), **more)["sdp"])
        shown_to_a = medium(self.answer(b or sdp(B_HOME, B_ID), **more)["sdp"])
        return self.open[shown_to_a.port], self.open[shown_to_b.port]


def medium(text: str) -> MediaDescription:
    """The only medium of a description."""
    (found,) = SessionDescription.parse(text.encode()).media
    return found
