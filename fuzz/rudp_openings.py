"""Fuzzing of HELLO and WELCOME with a live endpoint that dials and accepts, with and without the secret.

No response is longer than its request, half-open connections are few, and memory is bounded.
"""

from __future__ import annotations

import functools
import struct
import zlib
from random import Random
from typing import Final

from fuzz.mutation import mutated
from fuzz.script import Act, SeededRandom, Timed, acts_of, written
from fuzz.target_runs import Broken
from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, SendDatagram, SetTimer
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.frames import PLAIN, SEALED
from wanderbus.rudp.handshake import HALF_OPEN_MAX, DirectEndpoint
from wanderbus.rudp.handshake_messages import HELLO, WELCOME, OpeningSecret
from wanderbus.rudp.keys import KeyPair
from wanderbus.rudp.openings import Dial
from wanderbus.simulation.weight import weight_bytes
from wanderbus.transport import CloseConnection, SendMessage

SECRET: Final = b"known to both"
CONFIG: Final = RudpConfig()
CONNECTIONS_MAX: Final = 4
ACTS_MAX: Final = 40
WEIGHT_MAX: Final = 20_000
WEIGHED_EACH: Final = 8
SOURCES: Final[tuple[Address, ...]] = (("192.0.2.2", 2), ("192.0.2.3", 3))

_PUBLICS: Final = (
    KeyPair(b"p" * 32).public,
    KeyPair(b"q" * 32).public,
    bytes(32),
    b"\x01" + bytes(31),
    b"\xff" * 32,
)
"""Two keys, and some that make no shared secret or are not reduced (RFC 7748 6.1)."""


@functools.cache
def secret(*, sealed: bool) -> OpeningSecret:
    """Return what makes genuine HELLOs."""
    return OpeningSecret(SECRET, sealed=sealed)


def make(random: Random) -> bytes:
    """Return a script."""
    acts = [_act(random) for _ in range(random.choice((1, 1, 2, 3, 5)))]
    made = bytes([random.randrange(2)]) + written(acts)
    return mutated(random, made, (made,)) if random.random() < 0.1 else made


def _act(random: Random) -> Act:
    match random.choices(range(5), [40, 30, 10, 10, 10])[0]:
        case 0:
            dialler = random.choice((0, 1, 2, 3, random.getrandbits(64)))
            return 0, struct.pack("!QB", dialler, random.randrange(len(_PUBLICS)))
        case 1:
            return 1, _datagram(random)
        case 2:
            return 2, bytes([random.randrange(256)])
        case kind:
            return kind, bytes([random.randrange(256)])


def _datagram(random: Random) -> bytes:
    """Return a HELLO, a WELCOME or a packet, genuine or damaged, or noise."""
    public, ids = random.choice(_PUBLICS), (random.randrange(4), random.randrange(4))
    opening = secret(sealed=random.random() < 0.7)
    kind = random.choice((HELLO, WELCOME, SEALED, PLAIN, 0, 255))
    made = random.choice(
        (
            opening.hello(ids[0], public),
            struct.pack("!QQB", *ids, kind) + public + random.randbytes(32),
            struct.pack("!QQBBHQ", *ids, kind, 0, 0, 0) + random.randbytes(30),
        )
    )
    return mutated(random, made, (made,)) if random.random() < 0.5 else made


class Target(Timed):
    """A standalone endpoint, and an account of its input and output."""

    def __init__(self, *, sealed: bool) -> None:
        super().__init__()
        self.sealed = sealed
        self.endpoint = DirectEndpoint(
            SeededRandom(3), CONFIG, secret=SECRET, sealed=sealed, connections_max=CONNECTIONS_MAX
        )
        self.given_bytes = self.accepted = 0
        self.dialled: list[int] = []

    def act(self, kind: int, body: bytes) -> None:
        """Do one act of a script."""
        match kind:
            case 0:
                dialler, which = struct.unpack("!QB", body[:9].ljust(9, b"\0"))
                self.receive(secret(sealed=self.sealed).hello(dialler, _PUBLICS[which % len(_PUBLICS)]))
            case 1:
                self.receive(body)
            case 2:
                self.pass_time(sum(body[:1]) / 16)
            case 3:
                self.dialled.append(self.endpoint.allocate())
                self.step(Dial(self.dialled[-1], SOURCES[0]))
            case _ if self.dialled:
                local_id = self.dialled[sum(body[:1]) % len(self.dialled)]
                self.step(CloseConnection(local_id) if sum(body[:1]) & 1 else SendMessage(local_id, body))

    def receive(self, datagram: bytes) -> None:
        """Receive a datagram; responses are not longer."""
        self.given_bytes += len(datagram)
        sent = self.step(DatagramReceived("data", SOURCES[len(datagram) % 2], datagram))
        if sent > len(datagram):
            raise Broken(f"{sent} bytes answer {len(datagram)}")

    def step(self, given: Input) -> int:
        """Feed an input; return how many bytes were sent."""
        sent = 0
        for output in self.endpoint.step([given], self.now):
            if isinstance(output, SendDatagram):
                sent += len(output.data)
                self.accepted += output.data[16] == WELCOME
            elif isinstance(output, SetTimer):
                self.timers[output.key] = output.at
            elif isinstance(output, CancelTimer):
                self.timers.pop(output.key, None)
        return sent


def handle(script: bytes) -> bool:
    """Play a script."""
    target = Target(sealed=bool(sum(script[:1]) & 1))
    for acts, (kind, body) in enumerate(acts_of(script[1:])):
        if acts == ACTS_MAX:
            break
        target.act(kind % 5, body)
    if len(target.endpoint._half_open) > HALF_OPEN_MAX:
        raise Broken(f"{len(target.endpoint._half_open)} connections are half open")
    weight = weight_bytes(target.endpoint) if zlib.crc32(script) % WEIGHED_EACH == 0 else 0
    if weight > WEIGHT_MAX + 3 * target.given_bytes:
        raise Broken(f"{weight} bytes are kept of {target.given_bytes}")
    return target.accepted > 0
