"""Live endpoint of reliable UDP, sealed or plain, and a malicious peer with the right keys.

After each act the endpoint has sent no more than it may. To an unproved address it sends at most three times the bytes
that came from there (RFC 9000 8.1). To the peer it sends a bounded number of datagrams, and without data of its own at
most three times what it received, because an ACK and a RESPONSE are longer than the PING and the CHALLENGE that they
answer. Its memory is bounded by what it received.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections import Counter
from typing import Final

from fuzz.script import SeededRandom, acts_of
from fuzz.target_runs import Broken
from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.rudp import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Consumed,
    Endpoint,
    FinishSending,
    GapDetected,
    MessageReceived,
    MovedHere,
    OpenConnection,
    PathChanged,
    PeerFinished,
    Probe,
    ProbeAnswered,
    RudpConfig,
    SendMessage,
)
from wanderbus.rudp.frames import PLAIN, RESET, SEALED
from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.sealing import Sealer
from wanderbus.simulation.weight import weight_bytes

RAW, FRAMES, AHEAD, ELSEWHERE, RESETS, PASSES, SENDS, ASKS = range(8)
"""Acts: a datagram as it is; frames in a packet of the peer, the next, one far ahead, or from another address; a RESET
of the pair; time passes; the owner sends; the owner asks for something."""

PEER: Final[Address] = ("192.0.2.2", 2)
OTHERS: Final[tuple[Address, ...]] = (("192.0.2.3", 3), ("192.0.2.4", 4))
REMOTE_ID: Final = 0x2222_2222_2222_2222
CONFIG: Final = RudpConfig(message_bytes_max=20_000, send_queue_bytes_max=40_000, consume_at_once=False)
HEADER = struct.Struct("!QQBBHQ")

ACTS_MAX: Final = 60
AMPLIFICATION_MAX: Final = 3
WEIGHED_EACH: Final = 4
WEIGHT_MAX: Final = 20_000 + 250 * CONFIG.receive_window_frames
"""Memory of an endpoint with one connection besides three times its input: a window of empty frames."""
DATAGRAMS_MAX: Final = CONFIG.packets_in_flight_max + 8
"""Datagrams of one step: a whole congestion window, and ACKs."""

Report = (
    MessageReceived
    | PeerFinished
    | ConnectionFailed
    | ConnectionReset
    | ProbeAnswered
    | GapDetected
    | PathChanged
    | SetTimer
    | CancelTimer
)
SECRETS: Final = Secrets(sending=b"s" * 32, receiving=b"r" * 32)


@functools.cache
def peers_sealer() -> Sealer:
    """Return a sealer like the peer's."""
    return Sealer(Secrets(sending=SECRETS.receiving, receiving=SECRETS.sending), 2**62)


class Victim:
    """The endpoint, and an account of its input and output."""

    def __init__(self, *, sealed: bool) -> None:
        self.endpoint = Endpoint(SeededRandom(1), CONFIG, reset_key=b"k" * 32)
        self.local_id = self.endpoint.allocate()
        self.sealed = sealed
        self.now = 0.0
        self.timer_at: float | None = None
        self.number = 0
        self.given_bytes = self.own_bytes = self.sent_bytes = self.turns = self.delivered = 0
        self.came: Counter[Address] = Counter()
        self.went: Counter[Address] = Counter()
        self.proved = {PEER}
        secrets = SECRETS if sealed else None
        self.step(OpenConnection(self.local_id, REMOTE_ID, PEER, 0, secrets))

    def packet(self, frames: bytes, number: int, generation: int = 0) -> bytes:
        """Return a packet of the peer."""
        kind = SEALED if self.sealed else PLAIN
        header = HEADER.pack(self.local_id, REMOTE_ID, kind, 0, generation, number)
        return peers_sealer().seal(header, number, frames) if self.sealed else header + frames

    def act(self, kind: int, body: bytes) -> None:
        """Do one act of a script."""
        match kind:
            case 0:
                self.receive(body)
            case 1:
                self.receive(self._next(body))
            case 2:
                self.number += int.from_bytes(body[:3], "big")
                self.receive(self._next(body[3:]))
            case 3:
                self.receive(self._next(body[1:]), OTHERS[sum(body[:1]) % len(OTHERS)])
            case 4:
                self.receive(HEADER.pack(self.local_id, REMOTE_ID, RESET, 0, 0, 0)[:17] + body[:16].ljust(16, b"\0"))
            case 5:
                self._pass(sum(body[:2]) / 32)
            case 6:
                self.own_bytes += len(body) + 20
                self.step(SendMessage(self.local_id, body[: CONFIG.message_bytes_max]))
            case _:
                self._ask(body)

    def _next(self, frames: bytes) -> bytes:
        number, self.number = self.number % 2**64, self.number + 1
        return self.packet(frames[:1_100], number)

    def _pass(self, seconds: float) -> None:
        """Let time pass; timers fire when they are due."""
        until = self.now + seconds
        while self.timer_at is not None and self.timer_at <= until:
            self.now, self.timer_at = max(self.now, self.timer_at), None
            self.turns += 1
            self.step(TimerFired(self.local_id))
        self.now = until

    def _ask(self, body: bytes) -> None:
        which, value = sum(body[:1]) % 7, sum(body[1:3])
        if which == 0:
            address = OTHERS[value % len(OTHERS)]
            self.proved.add(address)
            self.step(ChangePath(self.local_id, address, value % 4))
        else:
            asked: tuple[Input, ...] = (
                MovedHere(self.local_id, value),
                Probe(self.local_id),
                FinishSending(self.local_id),
                Consumed(self.local_id, value),
                CloseConnection(self.local_id),
                OpenConnection(self.local_id, REMOTE_ID, PEER, 0, SECRETS if self.sealed else None),
            )
            self.step(asked[which - 1])

    def receive(self, datagram: bytes, source: Address = PEER) -> None:
        """Receive a datagram."""
        self.given_bytes += len(datagram)
        self.came[source] += len(datagram)
        self.step(DatagramReceived("data", source, datagram))

    def step(self, given: Input) -> None:
        """Feed an input; raise :class:`Broken` for a forbidden output."""
        self.turns += not isinstance(given, DatagramReceived)
        datagrams = 0
        for output in self.endpoint.step([given], self.now):
            if type(output) is SendDatagram:
                datagrams += 1
                self._sent(output)
            elif type(output) is SetTimer:
                self.timer_at = output.at
            elif type(output) is CancelTimer:
                self.timer_at = None
            else:
                self._reported(output)
        if datagrams > DATAGRAMS_MAX:
            raise Broken(f"{datagrams} datagrams in one step")
        if not self.own_bytes and self.sent_bytes > AMPLIFICATION_MAX * self.given_bytes + 120 * self.turns:
            raise Broken(f"{self.sent_bytes} bytes sent for {self.given_bytes} received")

    def _sent(self, output: SendDatagram) -> None:
        destination, size = output.destination, len(output.data)
        self.sent_bytes += size
        self.went[destination] += size
        if destination not in self.proved and self.went[destination] > AMPLIFICATION_MAX * self.came[destination]:
            raise Broken(f"{self.went[destination]} bytes to an address from which {self.came[destination]} came")
        if size > CONFIG.datagram_bytes_max:
            raise Broken(f"a datagram of {size} bytes")

    def _reported(self, output: Output) -> None:
        if not isinstance(output, Report):
            raise Broken(f"{output!r} is not declared")
        if isinstance(output, PathChanged):
            self.proved.add(output.remote)
        if isinstance(output, MessageReceived):
            self.delivered += 1
            if len(output.payload) > CONFIG.message_bytes_max:
                raise Broken(f"a message of {len(output.payload)} bytes")

    def check_weight(self) -> None:
        """Raise :class:`Broken` if memory exceeds its bound."""
        weight = weight_bytes(self.endpoint)
        if weight > WEIGHT_MAX + 3 * (self.given_bytes + self.own_bytes):
            raise Broken(f"{weight} bytes are kept of {self.given_bytes + self.own_bytes}")


def play(script: bytes) -> Victim:
    """Play a script, whose first byte decides whether the connection is sealed; return the endpoint."""
    victim = Victim(sealed=bool(sum(script[:1]) & 1))
    for acts, (kind, body) in enumerate(acts_of(script[1:])):
        if acts == ACTS_MAX:
            break
        victim.act(kind % 8, body)
    if zlib.crc32(script) % WEIGHED_EACH == 0:
        victim.check_weight()
    return victim
