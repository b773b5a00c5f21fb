"""Fuzzing of the door for lightweight clients, and of the client, with frames of hostile peers (SPEC P-02).

The door never raises, keeps its bounds, and lets nobody in without the password. The client never
raises, whatever the server sends.
"""

from __future__ import annotations

from random import Random
from typing import Final

from fuzz.mutation import mutated
from fuzz.script import SeededRandom, acts_of, written
from fuzz.target_runs import Broken, Target
from wanderbus.access import light_frames as wire
from wanderbus.access.light_door import LightDoor
from wanderbus.access.light_messages import LIGHT_SOCKET
from wanderbus.broker.messages import LinkOpened, MessageArrived, SendOnLink
from wanderbus.errors import RemoteProtocolError
from wanderbus.lightweight import Core, LightError
from wanderbus.lightweight.messagepack import pack, unpack
from wanderbus.lightweight.records import hmac_sha256
from wanderbus.machine import SendOnStream, StreamClosed, StreamReceived, TimerFired
from wanderbus.parameters.transports import LightLimits
from wanderbus.transport import Consumed

LIMITS: Final = LightLimits(logins_max=3, window_bytes=500, held_bytes_max=2_000)
SECRET: Final = "00" * 32
FINGERPRINT: Final = bytes(32)
HELLO: Final = bytes([1]) + bytes(16) + (300).to_bytes(4, "big") + b"\x05alice\x05meter\x07default\x00"
SAY, LOG_IN, CLOSE, ANSWER, WAIT = range(5)


def make_frame(random: Random) -> bytes:
    """Return a frame, sometimes an invalid one."""
    kind = random.choice((*range(11), wire.MESSAGE, wire.MESSAGE))
    body = {
        wire.HELLO: HELLO,
        wire.PROOF: bytes(32),
        wire.WELCOME: bytes(46),
        wire.REFUSED: bytes((random.randrange(6), 0, 1)) + b"no",
        wire.MESSAGE: pack(_message(random)),
        wire.GRANT: random.choice((0, 1_000, 2**63)).to_bytes(8, "big"),
    }.get(kind, b"")
    made = wire.encode(kind, body)
    return mutated(random, made, (made, b"\xff\xff\xff\xff")) if random.random() < 0.3 else made


def _message(random: Random) -> list[object]:
    """Return a message of a broker, approximately."""
    number = random.choice((0, 1, 2, 3, 2**62, -1))
    event = {"subject": "Trade", "attributes": {"N": number}}
    return random.choice(
        (
            [1, 7, "", 1, [], 0, 32_768, ""],
            [1, number, "", number, [[number, 1]], 0, 32_768, "s1"],
            [2, number, ["wb", 1, number], True],
            [3, number, "no", random.choice((None, "number_used", "disk_full"))],
            [4, number, ["wb", 1, number], event, ["wb-1-3"], False, [random.choice((1, 2, number))]],
            [5, 1, number, [["wb-1-3", "age", 3]], random.choice((1, None))],
            [6, random.choice((1, number)), [{"id": "wb-1-3"}]],
            [7, random.choice((0, 1, number)), "no"],
            [8, {"id": "wb-1-3"}, "expired"],
            [17, "wait", ""],
            [number, [number]],
        )
    )


def make_script(random: Random) -> bytes:
    """Return what some peers of a door do."""
    acts = []
    for _ in range(random.randrange(1, 30)):
        kind = random.choices((SAY, LOG_IN, CLOSE, ANSWER, WAIT), (6, 3, 1, 2, 1))[0]
        acts.append((kind, bytes([random.randrange(6)]) + make_frame(random)))
    return written(acts)


def handle_door(script: bytes) -> bool:
    """Let peers do what the script says; return whether one logged in."""
    door = LightDoor(
        SeededRandom(1),
        "example.org",
        {"alice": SECRET}.get,
        fingerprint=FINGERPRINT,
        message_bytes_max=400,
        limits=LIMITS,
    )
    now, links, knowing = 0.0, set[int](), set[int]()
    for kind, body in acts_of(script):
        number, data = (body[0] % 6 if body else 0), body[1:]
        now += 0.1
        given: list[object] = []
        if kind % 5 == LOG_IN:
            outputs = door.step([_received(number, wire.encode(wire.HELLO, HELLO))], now)
            sent = b"".join(each.data for each in outputs if isinstance(each, SendOnStream))
            if len(sent) >= 21 and sent[4] == wire.CHALLENGE:
                knowing.add(number)
                proof = wire.client_proof(SECRET, sent[5:21], FINGERPRINT, HELLO)
                given = [_received(number, wire.encode(wire.PROOF, proof))]
        elif kind % 5 == SAY:
            given = [_received(number, data)]
        elif kind % 5 == CLOSE:
            given = [StreamClosed(LIGHT_SOCKET, number, "reset")]
        elif kind % 5 == ANSWER:
            given = [each for link in links for each in (SendOnLink(link, data[5:] or b"\x90"), Consumed(link, 1))]
        else:
            now += 11
            given = [TimerFired("watch")]
        for output in door.step(given, now):  # type: ignore[arg-type]
            if isinstance(output, LinkOpened):
                if not knowing:
                    raise Broken("somebody is in without the password")
                links.add(output.link)
            if isinstance(output, MessageArrived) and output.link not in links:
                raise Broken("a message of a stranger reaches the broker")
        _check(door)
    return bool(links)


def _received(number: int, data: bytes) -> StreamReceived:
    return StreamReceived(LIGHT_SOCKET, number, ("192.0.2.1", 4_000), data, "TLS")


def _check(door: LightDoor) -> None:
    if len(door._strangers) > LIMITS.logins_max:
        raise Broken(f"{len(door._strangers)} connections without a login")
    for connection in door._connections.values():
        if connection.held_bytes > LIMITS.held_bytes_max + 400 and not connection.is_ending():
            raise Broken(f"{connection.held_bytes} bytes wait for a client")


def make_stream(random: Random) -> bytes:
    """Return what a hostile server says after its login."""
    messages = (wire.encode(wire.MESSAGE, pack(_message(random))) for _ in range(random.randrange(1, 8)))
    return b"".join(messages) + (make_frame(random) if random.random() < 0.3 else b"")


def handle_client(data: bytes) -> bool:
    """Let a client read what a server that knows the password says; return whether the connection goes on."""
    core = Core("alice", "secret", "meter", bytes, window_bytes=300)
    core.subscribe("Trade", "", 0.0)
    core.publish("Trade", {"N": 1}, None, 0.0)
    core.opened(FINGERPRINT, 0.0)
    core.data(wire.encode_challenge(bytes(16), "example.org"), 0.0)
    (proof,) = [each for each in core.take() if each[0] == "send" and each[1][4] == wire.PROOF]
    welcome = hmac_sha256(core._secret, b"wanderbus light server 1" + bytes(16) + FINGERPRINT + core._hello)
    core.data(wire.encode_welcome(welcome, 65_536, 65_536, 60), 0.0)
    for at in range(0, len(data), 50):
        core.data(data[at : at + 50], 1.0)
        if any(each[0] == "close" for each in core.take()):
            core.closed(2.0)
            core.state  # noqa: B018
            return False
    while core.next_item(2.0) is not None:
        pass
    core.ack(2.0)
    core.tick(20.0)
    return bool(unpack(core.state)) and bool(proof)


def handle_hello(data: bytes) -> bool:
    """Read a HELLO."""
    try:
        hello = wire.decode_hello(data)
    except RemoteProtocolError:
        return False
    if hello.body != data:
        raise Broken("the proof would cover something else")
    return True


def handle_value(data: bytes) -> bool:
    """Read MessagePack as the client does."""
    try:
        unpack(data)
    except LightError:
        return False
    return True


def make_hello(random: Random) -> bytes:
    """Return an approximate HELLO."""
    return mutated(random, HELLO, (HELLO,)) if random.random() < 0.8 else HELLO


def make_value(random: Random) -> bytes:
    """Return approximate MessagePack."""
    data = pack(_message(random))
    return mutated(random, data, (data, b"\xdf\xff\xff\xff\xff", b"\xc7\x0c\xff")) if random.random() < 0.8 else data


def examine_nothing(data: bytes) -> None:
    """Examine nothing: handling does."""


TARGETS: Final = (
    Target("light-hello", make_hello, handle_hello, examine_nothing),
    Target("light-door", make_script, handle_door, examine_nothing),
    Target("light-client", make_stream, handle_client, examine_nothing),
    Target("light-values", make_value, handle_value, examine_nothing),
)
