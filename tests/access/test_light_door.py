"""Door for lightweight clients: logins, bounds, and the owner of a session (SPEC P-02)."""

from __future__ import annotations

from random import Random

import pytest

from tests.lightweight.light_town import DOMAIN, FINGERPRINT, secret_of
from wanderbus.access import light_frames as wire
from wanderbus.access.light_door import ANSWER_S, ENDING_S, FIRST_LIGHT_LINK, LightDoor
from wanderbus.access.light_messages import LIGHT_SOCKET, LinkWanted
from wanderbus.broker.messages import DevicesDoubted, LinkClosed, LinkOpened, MessageArrived, SendOnLink
from wanderbus.machine import CloseStream, SendOnStream, StreamClosed, StreamReceived, TimerFired
from wanderbus.parameters.signalling import LoginLimits
from wanderbus.parameters.transports import LightLimits
from wanderbus.peers.owner_messages import CallPostponed, CallRedirected, CallServed
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.simulation.domains.multicast_network import DrawnRandom
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.transport import Consumed

LIMITS = LightLimits(logins_max=3, login_s_max=10, heard_s_max=60, window_bytes=1_000, held_bytes_max=500)


class Peer:
    """A door, and what clients say to it; ``out`` are its outputs."""

    def __init__(self, *, asks_owner: bool = False, logins_per_s: float = 2.0) -> None:
        self.now = 0.0
        self.out: list[object] = []
        self.door = LightDoor(
            DrawnRandom(Random(1)),
            DOMAIN,
            secret_of,
            fingerprint=FINGERPRINT,
            message_bytes_max=2_000,
            guard=LoginGuard(LoginLimits(free_failures=2)),
            limits=LIMITS,
            user_logins_per_s=logins_per_s,
            asks_owner=asks_owner,
        )

    def give(self, *inputs: object) -> list[object]:
        self.out = list(self.door.step(inputs, self.now))  # type: ignore[arg-type]
        return self.out

    def say(self, number: int, data: bytes, host: str = "192.0.2.1") -> list[tuple[int, bytes]]:
        """Send bytes on a connection; return the frames of the answer."""
        self.give(StreamReceived(LIGHT_SOCKET, number, (host, 4_000), data, "TLS"))
        return self.frames(number)

    def frames(self, number: int) -> list[tuple[int, bytes]]:
        data = b"".join(each.data for each in self.out if isinstance(each, SendOnStream) and each.connection == number)
        found = []
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            found.append((data[4], data[5:size]))
            data = data[size:]
        return found

    def of(self, kind: type) -> list[object]:
        return [each for each in self.out if isinstance(each, kind)]

    def later(self, seconds: float) -> list[object]:
        self.now += seconds
        return self.give(TimerFired("watch"))

    def log_in(
        self, number: int, user: str = "alice", device: str = "phone", *, secret: str = "", host: str = "192.0.2.1"
    ) -> list[tuple[int, bytes]]:
        """Log in on a connection; return the frames of the answer."""
        hello = hello_of(user, device)
        ((kind, body),) = self.say(number, wire.encode(wire.HELLO, hello), host)
        assert (kind, body[16:]) == (wire.CHALLENGE, DOMAIN.encode())
        proof = wire.client_proof(secret or secret_of(user) or "", body[:16], FINGERPRINT, hello)
        return self.say(number, wire.encode(wire.PROOF, proof), host)


def hello_of(user: str = "alice", device: str = "phone", window_bytes: int = 100) -> bytes:
    texts = b"".join(bytes([len(each)]) + each.encode() for each in (user, device, "default", ""))
    return bytes([1]) + bytes(16) + window_bytes.to_bytes(4, "big") + texts


def test_p02_a_login_opens_a_link() -> None:
    peer = Peer()
    ((kind, body),) = peer.log_in(7)
    assert kind == wire.WELCOME
    assert body[32:] == (1_000).to_bytes(8, "big") + (2_000).to_bytes(4, "big") + (30).to_bytes(2, "big")
    assert peer.of(LinkOpened) == [LinkOpened(FIRST_LIGHT_LINK + 7, "sip:alice@example.org", "phone")]
    peer.say(7, wire.encode(wire.MESSAGE, b"\x91\x01"))
    assert peer.of(MessageArrived) == [MessageArrived(FIRST_LIGHT_LINK + 7, b"\x91\x01")]
    peer.give(StreamClosed(LIGHT_SOCKET, 7, "reset"))
    assert peer.out == [LinkClosed(FIRST_LIGHT_LINK + 7, "reset")]
    assert len(peer.door) == 0


@pytest.mark.parametrize(("user", "device"), [("mallory", "phone"), ("", "phone"), ("alice", "")])
def test_a_wrong_user_or_device_is_refused_like_a_wrong_password(user: str, device: str) -> None:
    peer = Peer()
    ((kind, body),) = peer.log_in(7, user, device)
    assert (kind, body) == (wire.REFUSED, b"\x01\x00\x00wrong user or password")
    assert not peer.of(LinkOpened)
    assert peer.of(LoginRefused)


def test_a_proof_for_another_certificate_is_refused() -> None:
    peer, hello = Peer(), hello_of()
    ((_, body),) = peer.say(7, wire.encode(wire.HELLO, hello))
    proof = wire.client_proof(secret_of("alice") or "", body[:16], bytes(32), hello)
    assert peer.say(7, wire.encode(wire.PROOF, proof))[0][0] == wire.REFUSED


def test_a_recorded_proof_is_refused_on_another_connection() -> None:
    peer, hello = Peer(), hello_of()
    ((_, body),) = peer.say(7, wire.encode(wire.HELLO, hello))
    proof = wire.client_proof(secret_of("alice") or "", body[:16], FINGERPRINT, hello)
    peer.say(8, wire.encode(wire.HELLO, hello))
    assert peer.say(8, wire.encode(wire.PROOF, proof))[0][0] == wire.REFUSED


def test_the_limit_of_wrong_passwords_of_one_source() -> None:
    peer = Peer()
    for number in range(2):
        peer.log_in(number, secret="guess")
    ((kind, body),) = peer.log_in(9)
    assert (kind, body[0]) == (wire.REFUSED, wire.LATER)
    assert int.from_bytes(body[1:3], "big") > 0
    peer.now += 10
    assert peer.log_in(10)[0][0] == wire.WELCOME


def test_the_pace_of_logins_of_one_user() -> None:
    peer = Peer(logins_per_s=0.1)
    answers = [peer.log_in(number, device=str(number))[0][0] for number in range(22)]
    assert answers == [wire.WELCOME] * 20 + [wire.REFUSED] * 2
    assert peer.of(Limited)


def test_the_bound_of_connections_without_a_login() -> None:
    peer = Peer()
    for number in range(4):
        peer.say(number, wire.encode(wire.HELLO, hello_of()))
    assert peer.of(CloseStream) == [CloseStream(LIGHT_SOCKET, 0)]
    assert len(peer.door) == 3


def test_the_time_for_a_login() -> None:
    peer = Peer()
    peer.say(1, b"\x00")
    assert not peer.later(9).count(CloseStream(LIGHT_SOCKET, 1))
    assert CloseStream(LIGHT_SOCKET, 1) in peer.later(1)
    assert len(peer.door) == 0


def test_a_silent_client_is_closed_and_one_that_pings_is_not() -> None:
    peer = Peer()
    peer.log_in(1)
    peer.log_in(2, device="tablet")
    peer.later(40)
    assert peer.say(2, wire.encode(wire.PING)) == [(wire.PONG, b"")]
    peer.later(20)
    assert peer.of(CloseStream) == [CloseStream(LIGHT_SOCKET, 1)]
    assert peer.of(LinkClosed)


def test_a_client_that_does_not_answer_gives_way_when_devices_are_doubted() -> None:
    peer = Peer()
    peer.log_in(1)
    peer.log_in(2, device="tablet")
    peer.give(DevicesDoubted("sip:alice@example.org"))
    assert peer.frames(1) == peer.frames(2) == [(wire.PING, b"")]
    peer.say(2, wire.encode(wire.PONG))
    peer.later(ANSWER_S)
    assert peer.of(CloseStream) == [CloseStream(LIGHT_SOCKET, 1)]


def test_a_second_connection_of_a_device_ends_the_first() -> None:
    peer = Peer()
    peer.log_in(1)
    peer.log_in(2)
    assert peer.frames(1)[0][1][0] == wire.CLOSED
    assert peer.of(LinkClosed) == [LinkClosed(FIRST_LIGHT_LINK + 1, "the device has opened another connection")]
    assert CloseStream(LIGHT_SOCKET, 1) in peer.later(ENDING_S)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00\x01",
        b"\xff\xff\xff\xff\x06",
        wire.encode(0x0A),
        wire.encode(wire.MESSAGE, b"\x91\x01"),
        wire.encode(wire.PROOF, bytes(32)),
        wire.encode(wire.HELLO, b"\x02" + hello_of()[1:]),
        wire.encode(wire.HELLO, hello_of() + b"x"),
        wire.encode(wire.HELLO, hello_of()[:-1]),
        wire.encode(wire.HELLO, hello_of().replace(b"alice", b"\xff\xff\xff\xff\xff")),
        wire.encode(wire.HELLO, hello_of()) * 2,
    ],
)
def test_a_malformed_or_early_frame_ends_the_connection(data: bytes) -> None:
    peer = Peer()
    assert peer.say(1, data)[-1][1][0] == wire.CLOSED
    assert peer.door.malformed == 1
    assert not peer.say(1, wire.encode(wire.HELLO, hello_of()))


def test_a_client_that_sends_more_than_was_granted_is_closed() -> None:
    peer = Peer()
    peer.log_in(1)
    assert not peer.say(1, wire.encode(wire.MESSAGE, bytes(1_100)))
    assert peer.say(1, wire.encode(wire.MESSAGE, bytes(10)))[0][1][0] == wire.CLOSED


def test_processed_messages_are_granted_again() -> None:
    peer = Peer()
    peer.log_in(1)
    peer.say(1, wire.encode(wire.MESSAGE, bytes(595)))
    peer.give(Consumed(FIRST_LIGHT_LINK + 1, 1))
    assert peer.frames(1) == [(wire.GRANT, (1_600).to_bytes(8, "big"))]


def test_notifications_wait_for_the_window_of_the_client_and_answers_do_not() -> None:
    peer = Peer()
    peer.log_in(1)
    notify, done = b"\x98\x04" + bytes(58), b"\x93\x06\x01\x90"
    peer.give(*[SendOnLink(FIRST_LIGHT_LINK + 1, each) for each in (notify, notify, notify, done)])
    assert [body for _, body in peer.frames(1)] == [notify, notify, done]
    assert peer.say(1, wire.encode(wire.GRANT, (200).to_bytes(8, "big"))) == [(wire.MESSAGE, notify)]


def test_the_bound_of_what_waits_for_a_client() -> None:
    peer = Peer()
    peer.log_in(1)
    for _ in range(11):
        peer.give(SendOnLink(FIRST_LIGHT_LINK + 1, b"\x98\x04" + bytes(58)))
    assert peer.of(LinkClosed)
    assert peer.of(Limited)


def test_the_owner_of_the_session_is_asked_for_first() -> None:
    peer = Peer(asks_owner=True)
    for number in (1, 2, 3):
        assert peer.log_in(number, device=str(number)) == []
        assert peer.of(LinkWanted) == [LinkWanted(f"light:{number}", "sip:alice@example.org", "default", "")]
    peer.give(
        CallServed("light:1"), CallRedirected("light:2", ("sip:broker@192.0.2.9",)), CallPostponed("light:3", "s2")
    )
    assert peer.frames(1)[0][0] == wire.WELCOME
    assert peer.frames(2) == [(wire.REFUSED, b"\x03\x00\x00sip:broker@192.0.2.9")]
    assert peer.frames(3)[0][1][:3] == b"\x02\x00\x01"
    assert len(peer.of(LinkOpened)) == 1
