"""Grammar of frames, packets and scripts of reliable UDP from a hostile peer."""

from __future__ import annotations

import functools
import struct
from random import Random
from typing import Final

from fuzz.mutation import mutated
from fuzz.rudp_endpoint import PEER, REMOTE_ID, SECRETS, Victim
from fuzz.script import Act, SeededRandom, written
from wanderbus.machine import DatagramReceived, Input, Output, SendDatagram
from wanderbus.rudp import Endpoint, OpenConnection, SendMessage
from wanderbus.rudp.interface import Secrets

_DATA = struct.Struct("!BQH")
_ACK = struct.Struct("!BQQQ")
_NUMBERED = struct.Struct("!BQ")
_BITS: Final = 2**64 - 1
_EDGES: Final = (0, 1, 511, 1_023, 1_024, 1_025, 2_048, 2**16, 2**32, 2**63, _BITS)
SCRIPTS_EACH: Final = 12


def number(random: Random) -> int:
    """Return a number of a frame: low mostly, or where something ends."""
    drawn = random.random()
    return random.randrange(12) if drawn < 0.7 else random.choice(_EDGES) if drawn < 0.9 else random.getrandbits(64)


def bits(random: Random) -> int:
    """Return 64 bits."""
    return random.choice((0, 1, 0b111, _BITS, random.getrandbits(64)))


def frame(random: Random) -> bytes:
    """Return a frame, a few of them wrong."""
    match random.randrange(14):
        case 0 | 1 | 2 | 3 | 4:
            body = random.randbytes(random.choice((0, 1, 20, 300, 1_000)))
            length = len(body) if random.random() < 0.95 else random.randrange(2**16)
            return _DATA.pack(random.choice((1, 1, 2)), number(random), length) + body
        case 5 | 6 | 7:
            return _ACK.pack(3, number(random), bits(random), bits(random))
        case 8:
            return b"\x04"
        case 9:
            return _NUMBERED.pack(5, number(random))
        case 10:
            return bytes([random.choice((6, 7))]) + random.randbytes(8)
        case 11:
            return b"\x08" + random.randbytes(16)
        case 12:
            return _NUMBERED.pack(9, number(random))
        case _:
            return random.choice((b"\0" * random.randrange(40), random.randbytes(random.randrange(20))))


def frames(random: Random) -> bytes:
    """Return the frames of a packet."""
    made = b"".join(frame(random) for _ in range(random.choice((1, 1, 2, 3, 8))))
    return mutated(random, made, (made,)) if random.random() < 0.1 else made


def datagram(random: Random) -> bytes:
    """Return a header with frames, a real packet that was damaged, or noise."""
    drawn = random.random()
    if drawn < 0.4:
        corpus = packets(sealed=random.random() < 0.5)
        return mutated(random, random.choice(corpus), corpus) if random.random() < 0.8 else random.choice(corpus)
    if drawn < 0.9:
        ids = Victim(sealed=False).local_id if random.random() < 0.5 else random.getrandbits(64), REMOTE_ID
        header = struct.pack("!QQBBHQ", *ids, random.randrange(8), random.randrange(3), 0, number(random))
        return header + frames(random)
    return random.randbytes(random.randrange(100))


def script(random: Random) -> bytes:
    """Return a script for :func:`fuzz.rudp_endpoint.play`."""
    if random.random() < 0.03:
        return _many_of_one(random)
    acts = [_act(random) for _ in range(random.randint(1, SCRIPTS_EACH))]
    made = bytes([random.randrange(2)]) + written(acts)
    return mutated(random, made, (made,)) if random.random() < 0.1 else made


def _act(random: Random) -> Act:
    kind = random.choices(range(8), [15, 45, 8, 8, 2, 8, 8, 6])[0]
    match kind:
        case 0:
            return kind, datagram(random)
        case 1:
            return kind, frames(random)
        case 2:
            return kind, random.choice((b"\0\0\x05", b"\0\x04\0", b"\xff\xff\xff")) + frames(random)
        case 3:
            return kind, bytes([random.randrange(2)]) + frames(random)
        case 4:
            return kind, random.randbytes(16)
        case 5:
            return kind, random.choice((b"\x01", b"\x20", b"\xff", b"\xff\xff"))
        case 6:
            return kind, bytes(random.choice((0, 10, 1_200, 5_000, 15_000)))
        case _:
            return kind, random.randbytes(3)


def _many_of_one(random: Random) -> bytes:
    """Repeat one act, and send packets full of one kind of frame, to provoke growth."""
    if random.random() < 0.5:
        one = [_act(random)] * 60
    else:
        full = b"".join([frame(random)[:40]] * 200)
        ahead = b"".join(_DATA.pack(1, n, 0) for n in range(random.choice((0, 500, 1_020)), 1_200))
        one = [(1, random.choice((full, ahead))[start : start + 1_089]) for start in range(0, 5_000, 1_089)]
    return bytes([random.randrange(2)]) + written(one)


@functools.cache
def packets(*, sealed: bool) -> tuple[bytes, ...]:
    """Return what a well-behaved peer of the victim sends: messages long and short."""
    endpoint = Endpoint(SeededRandom(2))
    swapped = Secrets(sending=SECRETS.receiving, receiving=SECRETS.sending) if sealed else None
    local_id = Victim(sealed=sealed).local_id
    outputs: list[Output] = []
    given: list[Input] = [OpenConnection(REMOTE_ID, local_id, ("192.0.2.1", 1), 0, swapped)]
    given += [SendMessage(REMOTE_ID, bytes([size % 256]) * size) for size in (0, 3, 100, 4_000, 10, 1_139)]
    outputs += endpoint.step(given, 0.0)
    victim = Victim(sealed=sealed)
    for output in list(outputs):
        if isinstance(output, SendDatagram):
            for answer in victim.endpoint.step([DatagramReceived("data", PEER, output.data)], 0.1):
                if isinstance(answer, SendDatagram):
                    outputs += endpoint.step([DatagramReceived("data", ("192.0.2.1", 1), answer.data)], 0.2)
    return tuple(output.data for output in outputs if isinstance(output, SendDatagram))
