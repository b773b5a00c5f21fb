"""Fuzzing of a media relay's input: bencoding, the descriptions in its commands, and whole conversations with proxies.

A conversation is a script of acts: commands, datagrams at the ports, ports that cannot be opened, time that passes.
After each act the relay has kept its bounds; at the end every call is deleted, and no state may be left.
"""

from __future__ import annotations

import functools
import json
from random import Random
from typing import Any, Final

from fuzz import sip_grammar
from fuzz.mutation import mutated
from fuzz.script import Act, SeededRandom, acts_of, written
from fuzz.sip import corpus
from fuzz.target_runs import Broken, Target
from wanderbus.errors import RemoteProtocolError, SIPParseError
from wanderbus.machine import (
    Address,
    ClockRead,
    DatagramReceived,
    Input,
    Output,
    SendDatagram,
    SetTimer,
    TimerFired,
)
from wanderbus.relay import NG_SOCKET, ClosePort, OpenPort, PortOpened, PortRefused, Relay, RelayLimits, Side
from wanderbus.relay.bencode import decode, encode
from wanderbus.relay.description import read, rewritten
from wanderbus.sip.message.sdp import SessionDescription

COMMAND, DATAGRAM, SLEEP, PORTS = range(4)
BYTES_MAX: Final = 65_507
PORTS_TAKEN: Final = range(30_000, 30_010)
LIMITS: Final = RelayLimits(calls_max=4, media_max=3, idle_s=20.0, replies_max=8, stream_datagrams_per_s=200)
RELAY: Final = "198.51.100.1"
TAGS: Final = ("a", "b", "c", "")
PLACES: Final[tuple[Address, ...]] = (("192.0.2.1", 4_000), ("203.0.113.1", 61_000), ("203.0.113.66", 6_666))
IDS: Final = (1, 2, 0xFFFFFFFFFFFFFFFF)


# Bencoding ------------------------------------------------------------------------------------------------------------


def make_bencoding(random: Random) -> bytes:
    """Return an approximate value."""
    if random.random() < 0.1:
        return random.randbytes(random.randint(0, 60))
    data = encode(_value(random, 4))
    return (mutated(random, data, (data, b"d1:al", b"i-1e99:")) if random.random() < 0.8 else data)[:BYTES_MAX]


def handle_bencoding(data: bytes) -> bool:
    """Read and write a value."""
    try:
        value = decode(data)
    except RemoteProtocolError:
        return False
    if decode(encode(value)) != value:
        raise Broken("it is not read as it was written")
    return True


def examine_nothing(data: bytes) -> None:
    """Do nothing: a value is complete once it was read."""


def _value(random: Random, depth: int) -> Any:
    match random.randrange(5) if depth else random.randrange(2):
        case 0:
            return random.randbytes(random.randint(0, 12)).decode(errors="surrogateescape")
        case 1:
            return random.choice((0, -1, random.getrandbits(62), -random.getrandbits(59)))
        case 2:
            return [_value(random, depth - 1) for _ in range(random.randint(0, 4))]
        case _:
            return {str(random.randrange(9)): _value(random, depth - 1) for _ in range(random.randint(0, 4))}


# Descriptions ---------------------------------------------------------------------------------------------------------


def make_description(random: Random) -> bytes:
    """Return an approximate description in an offer."""
    seeds = (*corpus("sdp"), *_descriptions())
    drawn = random.random()
    data = random.choice(seeds) if drawn < 0.6 else sip_grammar.description(random)
    return (mutated(random, data, seeds) if random.random() < 0.8 else data)[:BYTES_MAX]


def handle_description(data: bytes) -> bool:
    """Read and rewrite a description: the only addresses left are the relay's."""
    text = data.decode(errors="surrogateescape")
    try:
        described = read(text)
    except SIPParseError:
        return False
    ports = [30_000 + place if medium.wanted else 0 for place, medium in enumerate(described.media)]
    changed = SessionDescription.parse(rewritten(text, RELAY, ports, origin=True).encode())
    if [medium.port for medium in changed.media] != ports:
        raise Broken("the ports are not the relay's")
    if {changed.address, *(medium.address for medium in changed.media)} != {RELAY}:
        raise Broken("an address is not the relay's")
    before = SessionDescription.parse(data)
    for old, new in zip(before.media, changed.media, strict=True):
        if not set(new.attributes) <= set(old.attributes) or (old.protocol, old.formats) != (new.protocol, new.formats):
            raise Broken("a medium was changed besides")
    return True


@functools.cache
def _descriptions() -> tuple[bytes, ...]:
    return tuple(_sdp(place, number, kind).encode() for place in PLACES for number in IDS[:2] for kind in range(5))


def _sdp(place: Address, connection: int, kind: int) -> str:
    protocol, attributes = (
        ("UDP", f"a=wanderbus-connection:{connection:016x}\r\na=wanderbus-generation:{connection % 7}\r\n"),
        ("TCP", f"a=wanderbus-connection:{connection:016x}\r\na=setup:active\r\na=connection:new\r\n"),
        ("TCP/TLS", f"a=wanderbus-connection:{connection:016x}\r\na=setup:passive\r\n"),
        ("RTP/AVP", "a=rtcp:7\r\na=candidate:1 1 UDP 1 10.0.0.1 1 typ host\r\na=ice-ufrag:x\r\n"),
        ("UDP", f"m=audio 0 RTP/AVP 0\r\nm=video {place[1]}/2 UDP x\r\n"),
    )[kind]
    host, port = place
    head = f"v=0\r\no=- 1 1 IN IP4 {host}\r\ns=-\r\nc=IN IP4 {host}\r\nt=0 0\r\n"
    return f"{head}m=application {port} {protocol} x-wanderbus\r\n{attributes}"


# Conversations --------------------------------------------------------------------------------------------------------


def make_conversation(random: Random) -> bytes:
    """Return a script."""
    agreed = [(COMMAND, _plain(random, command)) for command in ("offer", "answer")] if random.random() < 0.5 else []
    script = written([*agreed, *(_act(random) for _ in range(random.choice((1, 3, 8, 20))))])
    return mutated(random, script, (script,))[:BYTES_MAX] if random.random() < 0.3 else script[:BYTES_MAX]


def _act(random: Random) -> Act:
    match random.randrange(10):
        case 0:
            return SLEEP, random.randbytes(1)
        case 1:
            return PORTS, random.randbytes(1)
        case 2 | 3:
            start = random.choice(IDS).to_bytes(8, "big") if random.random() < 0.7 else random.randbytes(8)
            return DATAGRAM, random.randbytes(2) + start + random.randbytes(random.randint(0, 30))
        case _:
            return COMMAND, _command(random)


def _plain(random: Random, command: str) -> bytes:
    """Return half of a correct call."""
    sdp = _sdp(random.choice(PLACES), random.choice(IDS), random.randrange(3))
    fields = {"command": command, "call-id": "call0", "from-tag": "a", "to-tag": "b", "sdp": sdp}
    return b"%d " % random.randrange(100, 200) + encode(fields)


def _command(random: Random) -> bytes:
    drawn = random.random()
    sdp = _sdp(random.choice(PLACES), random.choice(IDS), random.randrange(5))
    if random.random() < 0.1:
        sdp = mutated(random, sdp.encode(), corpus("sdp")).decode(errors="surrogateescape")
    fields: dict[str, Any] = {
        "command": random.choice(("offer", "offer", "answer", "answer", "delete", "query", "list", "statistics", "x")),
        "call-id": f"call{random.randrange(8)}",
        "from-tag": random.choice(TAGS),
        "to-tag": random.choice(TAGS),
        "via-branch": random.choice(("", "", "x", "y")),
        "sdp": sdp,
        "flags": random.sample(["trust address", "SIP source address", "replace-origin", "unheard-of"], 2),
        "received-from": random.choice((["IP4", "203.0.113.9"], ["IP4"], "IP4", ["IP6", "::1"], ["IP4", 5])),
        "limit": random.choice((0, 3, "2", -1, 10**18)),
    }
    for key in random.sample(sorted(fields), random.choice((0, 0, 1, 3))):
        fields.pop(key) if random.random() < 0.6 else fields.update({key: _value(random, 2)})
    cookie = b"%d " % random.randrange(60)
    if drawn < 0.2:
        return cookie + json.dumps(fields, ensure_ascii=random.random() < 0.5).encode(errors="replace")
    data = cookie + encode(fields)
    return mutated(random, data, (data, b"1 d7:command")) if drawn < 0.4 else data


def handle_conversation(script: bytes) -> bool:
    """Run the conversation; return whether it opened a port."""
    desk = _Desk()
    for kind, body in acts_of(script):
        desk.do(kind, body)
        desk.check()
    return desk.finish()


class _Desk:
    """A relay, its ports, and the checks of both."""

    def __init__(self) -> None:
        self.relay = Relay(SeededRandom(1), address=RELAY, ports=PORTS_TAKEN, limits=LIMITS)
        self._now = 0.0
        self._open: dict[str, Side] = {}
        self._opened = 0
        self._refusing = 0
        self._timer: float | None = None

    def do(self, kind: int, body: bytes) -> None:
        """Do one act; whatever its kind says."""
        match kind % 4:
            case 0:
                self._step(ClockRead(1), DatagramReceived(NG_SOCKET, PLACES[len(body) % 2], body))
            case 1 if self._open:
                name = sorted(self._open)[(body[0] if body else 0) % len(self._open)]
                places = (self._open[name].source or PLACES[0], *PLACES)
                source = places[(body[1] if len(body) > 1 else 0) % len(places)]
                self._step(DatagramReceived(name, source, body[2:]))
            case 2:
                self._sleep((body[0] if body else 0) / 8)
            case 3:
                self._refusing = (body[0] if body else 0) % 4

    def check(self) -> None:
        """Raise :class:`Broken` unless the relay has kept its bounds."""
        relay, limits = self.relay, LIMITS
        if relay.sides != self._open:
            raise Broken("the relay and its host are not of one mind which ports are open")
        if len(relay.calls) > limits.calls_max or len(relay._replies) > limits.replies_max:
            raise Broken("a bound was passed")
        if len(self._open) + len(relay._ports) != len(PORTS_TAKEN):
            raise Broken("a port was lost, or is there twice")
        if relay._waiting:
            raise Broken("a command waits for ever")
        used = {id(side) for call in relay.calls.values() for side in call.sides()}
        if not used >= {id(side) for side in self._open.values()}:
            raise Broken("a port is open that no call has")

    def finish(self) -> bool:
        """Let all calls expire, and check that nothing remains; return whether there was any port."""
        self._sleep(60.0)
        self.check()
        if self._open or self.relay.calls or self.relay._replies or self._timer is not None:
            raise Broken("something is left when all calls are over")
        return self._opened > 0

    def _sleep(self, seconds: float) -> None:
        until = self._now + seconds
        while self._timer is not None and self._timer <= until:
            self._now, self._timer = self._timer, None
            self._step(TimerFired("sweep"))
        self._now = until

    def _step(self, *given: Input) -> None:
        outputs: list[Output] = self.relay.step(given, self._now)
        while outputs:
            match outputs.pop(0):
                case OpenPort(side=side, port=port):
                    refused = bool(self._refusing) and port % 4 < self._refusing
                    if not refused:
                        self._open[f"{side.transport} {port}"] = side
                        self._opened += 1
                    answer = PortRefused(side, port) if refused else PortOpened(side, port)
                    outputs += self.relay.step([answer], self._now)
                case ClosePort(side=side, port=port):
                    self._open.pop(f"{side.transport} {port}", None)
                case SetTimer(at=at):
                    self._timer = at
                case SendDatagram(socket=name, destination=destination) if name != NG_SOCKET:
                    if name not in self._open or not destination[1]:
                        raise Broken("a datagram leaves by a port that is not open, or to nobody")
                    received = given[0]
                    assert isinstance(received, DatagramReceived)
                    if self._open[name].source != destination:
                        raise Broken("a datagram goes elsewhere than the party is")


TARGETS: Final = (
    Target("ng-bencode", make_bencoding, handle_bencoding, examine_nothing),
    Target("ng-sdp", make_description, handle_description, examine_nothing),
    Target("ng-conversation", make_conversation, handle_conversation, examine_nothing),
)
