"""Fuzzing of the data channel over TCP, and of its SDP, with input from hostile peers.

The TCP endpoint accepts connections and opens one itself. Its peers sometimes know the secret of the pair, and then
send forbidden messages. The endpoint never raises, opens no more connections than it was ordered to, and its memory is
bounded.
"""

from __future__ import annotations

import struct
import zlib
from random import Random
from typing import Final

from fuzz.mutation import mutated
from fuzz.script import Act, SeededRandom, Timed, acts_of, written
from fuzz.target_runs import Broken
from wanderbus.datachannel import Parties, describe_end, read_end
from wanderbus.errors import RemoteProtocolError, SIPParseError
from wanderbus.machine import (
    Address,
    CancelTimer,
    CloseStream,
    Input,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
)
from wanderbus.simulation.weight import weight_bytes
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.tcp import Endpoint, OpenConnection, TcpConfig
from wanderbus.tcp import frames as wire
from wanderbus.tcp.interface import TcpTarget
from wanderbus.tcp.stream import make_proof, make_welcome
from wanderbus.transport import Consumed, FinishSending, MessageReceived, MovedHere, Probe, SendMessage

# TCP frames ---------------------------------------------------------------------------------------------------------

MESSAGE_BYTES_MAX: Final = 5_000


def make_frame(random: Random) -> bytes:
    """Return a frame, sometimes an invalid one."""
    number = random.choice((0, 0, 0, 1, 1, 2, 2, 3, 2**32, 2**64 - 1, random.getrandbits(64)))
    grant = random.choice((0, 1_000, 2**40, 2**64 - 1)).to_bytes(8, "big")
    kind = random.choices(range(12), [1, 4, 2, 2, 1, 20, 3, 12, 3, 3, 1, 1])[0]
    body = {
        wire.HELLO: random.randbytes(32),
        wire.WELCOME: grant + random.randbytes(48),
        wire.PROOF: grant + random.randbytes(32),
        wire.DATA: bytes(random.choice((0, 1, 200, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1))),
        wire.ACK: grant,
    }.get(kind, b"")
    made = wire.encode(kind, number, body)
    if random.random() < 0.05:
        return random.getrandbits(32).to_bytes(4, "big") + made[4:]
    return mutated(random, made, (made,)) if random.random() < 0.05 else made


def make_stream(random: Random) -> bytes:
    """Return some consecutive frames; the first byte decides how they are cut."""
    made = b"".join(make_frame(random) for _ in range(random.choice((1, 2, 5, 20))))
    return bytes([random.randrange(256)]) + made


def handle_stream(data: bytes) -> bool:
    """Read frames, however they are cut, as if they came at once; keep at most one."""
    pieces = _pieces(data[1:], Random(sum(data[:1])))
    try:
        whole = _read([data[1:]])
    except RemoteProtocolError:
        whole = None
    try:
        cut = _read(pieces)
    except RemoteProtocolError:
        cut = None
    if whole != cut:
        raise Broken("it matters where the stream is cut")
    if whole is None:
        return False
    written_again = b"".join(wire.encode(*frame) for frame in whole)
    if not data[1:].startswith(written_again):
        raise Broken("it is not read as it was written")
    return bool(whole)


def _read(pieces: list[bytes]) -> list[wire.Frame]:
    reader = wire.FrameReader()
    reader.message_bytes_max = MESSAGE_BYTES_MAX
    read: list[wire.Frame] = []
    for piece in pieces:
        read += reader.frames(piece)
        if len(reader._held) > MESSAGE_BYTES_MAX + 100:
            raise Broken(f"{len(reader._held)} bytes of an incomplete frame are held")
    return read


def _pieces(data: bytes, random: Random) -> list[bytes]:
    cuts = sorted(random.randint(0, len(data)) for _ in range(random.choice((0, 1, 3, 30))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


# A living TCP endpoint ----------------------------------------------------------------------------------------------

CONFIG: Final = TcpConfig(
    message_bytes_max=MESSAGE_BYTES_MAX,
    receive_window_bytes=20_000,
    unacknowledged_bytes_max=20_000,
    send_queue_bytes_max=40_000,
)
REMOTE_IDS: Final = (11, 22)
SHARED: Final = b"s" * 32
PEER: Final[Address] = ("192.0.2.2", 2)
ACTS_MAX: Final = 40
WEIGHT_MAX: Final = 20_000
WEIGHED_EACH: Final = 8
ACTS: Final = 8


class Victim(Timed):
    """An endpoint with two connections, one that accepts and one that connects."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoint = Endpoint(SeededRandom(4), CONFIG)
        self.passive, self.active = self.endpoint.allocate(), self.endpoint.allocate()
        self.open: dict[int, TcpTarget | None] = {}
        self.dialled: list[tuple[TcpTarget, bytes]] = []
        self.heard: dict[int, bytes] = {}
        self.given_bytes = self.own_bytes = self.delivered = self.count = 0
        self.step(OpenConnection(self.passive, REMOTE_IDS[0], 0, SHARED, None))
        self.step(OpenConnection(self.active, REMOTE_IDS[1], 0, SHARED, TcpTarget("TCP", PEER)))

    def act(self, kind: int, body: bytes) -> None:
        """Do one act of a script."""
        which = sum(body[:1])
        match kind:
            case 0:
                self._connected(None)
            case 1 | 2 if self.open:
                self.receive(list(self.open)[which % len(self.open)], body[1:])
            case 3:
                self._shake_hands(which)
            case 4 if self.open:
                self._gone(list(self.open)[which % len(self.open)])
            case 5:
                self.pass_time(which / 16)
            case 6:
                payload = body[1:][:MESSAGE_BYTES_MAX]
                self.own_bytes += len(payload) + 20
                self.step(SendMessage((self.passive, self.active)[which % 2], payload))
            case 7:
                self._ask(which)

    def _connected(self, target: TcpTarget | None) -> int:
        self.count += 1
        self.open[self.count] = target
        return self.count

    def receive(self, connection: int, data: bytes) -> None:
        """Receive bytes of a TCP connection."""
        self.given_bytes += len(data)
        if data:
            target = self.open[connection]
            self.step(StreamReceived("data-stream", connection, PEER, data, "TCP", target))

    def _shake_hands(self, which: int) -> None:
        """Prove knowledge of the secret: on a connection of our own, or on the last that was opened to us."""
        if which % 2 and self.dialled:
            target, hello = self.dialled.pop()
            self.receive(self._connected(target), make_welcome(SHARED, hello, b"n" * 16, 0, 2**30, b""))
        else:
            hello = wire.encode_hello(which // 8, self.passive, REMOTE_IDS[0], b"n" * 16)
            connection = self._connected(None)
            self.receive(connection, hello)
            if connection in self.open:
                welcome = self.heard.get(connection, b"")
                self.receive(connection, make_proof(SHARED, hello, welcome, max(0, which - 240), 2**30, b""))

    def _gone(self, connection: int) -> None:
        self.step(StreamClosed("data-stream", connection, "gone", self.open.pop(connection)))

    def _ask(self, which: int) -> None:
        local_id = (self.passive, self.active)[which % 2]
        asked: tuple[Input, ...] = (
            Probe(local_id),
            FinishSending(local_id),
            MovedHere(local_id, which),
            Consumed(local_id, which),
        )
        self.step(asked[which // 2 % len(asked)])

    def step(self, given: Input) -> None:
        """Feed an input."""
        closing: list[int] = []
        for output in self.endpoint.step([given], self.now):
            if isinstance(output, SendOnStream):
                self._sent(output)
            elif isinstance(output, CloseStream):
                closing.append(output.connection)
            elif isinstance(output, SetTimer):
                self.timers[output.key] = output.at
            elif isinstance(output, CancelTimer):
                self.timers.pop(output.key, None)
            elif isinstance(output, MessageReceived):
                self.delivered += 1
        for connection in closing:
            if connection in self.open:
                self._gone(connection)

    def _sent(self, output: SendOnStream) -> None:
        if output.connection is not None:
            self.heard[output.connection] = output.data
        else:
            assert isinstance(output.target, TcpTarget)
            self.dialled = [*self.dialled[-20:], (output.target, output.data)]


def make_script(random: Random) -> bytes:
    """Return a script."""
    acts: list[Act] = [(3, bytes([random.randrange(256)]))] if random.random() < 0.5 else []
    for _ in range(random.choice((1, 2, 4, 8, 20))):
        kind = random.choices(range(ACTS), [10, 30, 10, 25, 5, 10, 10, 8])[0]
        body = bytes([random.randrange(256)])
        if kind in (1, 2):
            body += b"".join(make_frame(random) for _ in range(random.choice((1, 1, 4))))
        elif kind == 6:
            body += bytes(random.choice((0, 10, 4_000)))
        acts.append((kind, body))
    made = written(acts)
    return mutated(random, made, (made,)) if random.random() < 0.1 else made


def handle_script(script: bytes) -> bool:
    """Play a script; return whether a message came through."""
    victim = Victim()
    for acts, (kind, body) in enumerate(acts_of(script)):
        if acts == ACTS_MAX:
            break
        victim.act(kind % ACTS, body)
    given_bytes = victim.given_bytes + victim.own_bytes
    weight = weight_bytes(victim.endpoint) if zlib.crc32(script) % WEIGHED_EACH == 0 else 0
    if weight > WEIGHT_MAX + 3 * given_bytes:
        raise Broken(f"{weight} bytes are kept of {given_bytes}")
    return victim.delivered > 0


# SDP ----------------------------------------------------------------------------------------------------------------

PARTIES: Final = Parties("agent", "sip:a@example", "sip:b@example", "dialog", b"s" * 32)

_VALUES: Final = {
    "wanderbus-connection": ("1f00c3a8d2b94e61", "0", "ffffffffffffffff", "1" * 17, "-1", "0x10", "\u0661", ""),
    "wanderbus-generation": ("0", "3", "4294967295", "4294967296", "-1", "1e3", "\u0663", ""),
    "wanderbus-key": ("x25519-aes128gcm " + "A" * 43 + "=", "x25519-aes128gcm AAAA", "x25519 ", "=", ""),
    "wanderbus-mac": ("A" * 43 + "=", "A" * 44, "====", "\u00e9", ""),
    "wanderbus-plain": (None, "x"),
    "setup": ("active", "passive", "actpass", "holdconn", "", None),
    "connection": ("new", "existing", "", None),
    "fingerprint": (
        "sha-256 " + ":".join(["AB"] * 32),
        "SHA-256 " + "ab" * 32,
        "sha-1 AA",
        "sha-256 G0",
        "sha-256",
        None,
    ),
}


def make_description(random: Random) -> bytes:
    """Return a session description with something like a data channel in it."""
    attributes: list[tuple[str, str | None]] = []
    for name, values in _VALUES.items():
        if random.random() < 0.7:
            attributes.append((name, values[0] if random.random() < 0.7 else random.choice(values)))
    random.shuffle(attributes)
    protocol = random.choice(("UDP", "TCP", "TCP/TLS", "udp", "RTP/AVP"))
    lines = ["v=0", "o=- 1 1 IN IP4 192.0.2.1", "s=-", "c=IN IP4 192.0.2.1", "t=0 0"]
    lines.append(f"m=application {random.choice((40_000, 0, 9, 65_535))} {protocol} x-wanderbus")
    lines += [f"a={name}" if value is None else f"a={name}:{value}" for name, value in attributes]
    made = "".join(f"{line}\r\n" for line in lines).encode()
    return mutated(random, made, (made,)) if random.random() < 0.5 else made


def handle_description(data: bytes) -> bool:
    """Read the ends of data channels, and write them again."""
    try:
        media = SessionDescription.parse(data).media
    except SIPParseError:
        return False
    return sum(_handle_medium(medium) for medium in media) > 0


def _handle_medium(medium: MediaDescription) -> bool:
    try:
        end = read_end(medium)
    except SIPParseError as error:
        if error.status != 488:
            raise Broken(f"status {error.status} is not that of an unacceptable description") from None
        return False
    if read_end(describe_end(end)) != end:
        raise Broken("it is not read as it was written")
    try:
        PARTIES.check(end, encryption=True)
    except SIPParseError:
        pass
    else:
        raise Broken("it is believed without the secret")
    PARTIES.mac(end, "broker")
    struct.pack("!QI", end.connection, end.generation)
    return True
