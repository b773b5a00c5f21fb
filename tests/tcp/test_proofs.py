"""Ownership of a TCP connection: a stranger without the pair's secret can neither use it nor block it (DESIGN 6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.tcp.conftest import FINGERPRINT, SECRET, SOCKET
from wanderbus.machine import (
    CancelTimer,
    CloseStream,
    Output,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.refusals import Limited
from wanderbus.tcp import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    MessageReceived,
    MovedHere,
    OpenConnection,
    PeerFinished,
)
from wanderbus.tcp.frames import (
    ACK,
    DATA,
    FINISH,
    PING,
    PONG,
    PROOF,
    RESET,
    WELCOME,
    FrameReader,
    decode_welcome,
    encode,
    encode_ack,
    encode_hello,
    encode_proof,
)
from wanderbus.tcp.stream import make_proof

if TYPE_CHECKING:
    from tests.tcp.conftest import MakeWorld, World

NONCE = bytes(16)


class Stranger:
    """A stranger with a TCP connection to the passive side, who writes arbitrary bytes."""

    def __init__(self, world: World, number: int = 4711) -> None:
        self.world = world
        self.number = number
        self.hello = encode_hello(0, world.passive.local_id, world.active.local_id, NONCE)

    def write(self, *frames: bytes) -> Sequence[Output]:
        item = StreamReceived(SOCKET, self.number, ("203.0.113.5", 5), b"".join(frames), "TLS")
        return self.world.passive.endpoint.step([item], self.world.now)

    def say_hello(self, generation: int = 0) -> bytes:
        """Return the WELCOME."""
        self.hello = encode_hello(generation, self.world.passive.local_id, self.world.active.local_id, NONCE)
        (welcome,) = [each.data for each in self.write(self.hello) if isinstance(each, SendOnStream)]
        return welcome

    def proof(self, welcome: bytes, secret: bytes = SECRET, fingerprint: bytes = FINGERPRINT) -> bytes:
        return make_proof(secret, self.hello, welcome, 0, 10_000, fingerprint)


@pytest.fixture
def stranger(world: World) -> Stranger:
    return Stranger(world)


def ends(outputs: Sequence[Output]) -> bool:
    return any(isinstance(each, CloseStream) and each.connection == 4711 for each in outputs)


def test_with_the_secret_it_is_the_peer_and_the_newer_path_wins(world: World, stranger: Stranger) -> None:
    (old,) = world.live
    outputs = stranger.write(stranger.proof(stranger.say_hello()), encode(DATA, 0, b"hello"))
    assert MessageReceived(world.passive.local_id, b"hello") in outputs
    assert CloseStream(SOCKET, old.number) in outputs
    assert CancelTimer(("hello", 4711)) in outputs


@pytest.mark.parametrize("wrong", ["secret", "fingerprint", "position", "role", "nonce"])
def test_a_wrong_proof_changes_nothing(world: World, stranger: Stranger, wrong: str) -> None:
    welcome = stranger.say_hello()
    proof = {
        "secret": stranger.proof(welcome, secret=b"another"),
        "fingerprint": stranger.proof(welcome, fingerprint=bytes(32)),
        "position": encode_proof(1, 10_000, stranger.proof(welcome)[-32:]),
        "role": encode_proof(0, 10_000, welcome[-32:]),
        "nonce": stranger.proof(welcome[:-60] + bytes(60)),
    }[wrong]
    outputs = stranger.write(proof, encode(DATA, 0, b"forged"))
    assert ends(outputs)
    assert world.passive.endpoint.counters.forged == 1
    assert world.passive.endpoint.counters.malformed == 0, "what follows is not read"
    assert not [each for each in outputs if isinstance(each, MessageReceived)]
    assert stranger.write(encode(DATA, 0, b"after the end")) == []
    world.send(world.active, b"undisturbed")
    world.settle()
    assert world.passive.received == [b"undisturbed"]


def test_a_handshake_cannot_be_replayed(world: World, stranger: Stranger) -> None:
    active_wrote = [data for side, data in world.writes if side is world.active]
    hello, proof = active_wrote[0], active_wrote[1]
    stranger.write(hello)
    assert ends(stranger.write(proof))
    assert world.passive.endpoint.counters.forged == 1


@pytest.mark.parametrize(
    "first", [encode(DATA, 0, b"x"), encode(PING), encode_proof(0, 0, bytes(32)), encode(RESET), b"GET / HTTP/1.1\r\n"]
)
def test_a_first_frame_that_is_no_hello_ends_it(world: World, stranger: Stranger, first: bytes) -> None:
    assert ends(stranger.write(first))
    assert world.passive.endpoint.counters.malformed == 1


def test_a_second_hello_and_data_before_the_proof_end_it(world: World) -> None:
    for number, second in enumerate([encode_hello(0, 1, 2, NONCE), encode(DATA, 0, b""), encode_ack(0, 0)]):
        stranger = Stranger(world, number + 100)
        stranger.say_hello()
        assert CloseStream(SOCKET, stranger.number) in stranger.write(second)


def test_a_peer_without_a_proof_in_time_is_closed(world: World, stranger: Stranger) -> None:
    timers = [each for each in stranger.write(stranger.hello[:5]) if isinstance(each, SetTimer)]
    assert timers == [SetTimer(("hello", 4711), world.now + 15.0)]
    stranger.write(stranger.hello[5:])
    fired = TimerFired(("hello", 4711))
    limited, close = world.passive.endpoint.step([fired], world.now + 15.0)
    assert isinstance(limited, Limited)
    assert (limited.limit, close) == ("tcp_channels.hello_s_max", CloseStream(SOCKET, 4711))
    assert world.passive.endpoint.counters.silent == 1
    assert world.passive.endpoint.step([fired], world.now + 16.0) == []


def test_a_peer_with_a_proof_in_time_is_not_closed(world: World) -> None:
    world.run(100.0)
    assert len(world.live) == 1
    assert world.passive.endpoint.counters.silent == 0


def test_an_unknown_pair_is_refused_and_reset(make_world: MakeWorld) -> None:
    """DESIGN 6.3: as after the restart of the passive side."""
    world = make_world()
    world.step(world.passive, CloseConnection(world.passive.local_id))
    world.run(0.3)
    assert world.active.reports == [ConnectionReset(world.active.local_id)]
    assert world.passive.endpoint.counters.resets == 1
    assert world.live == []
    assert world.active.timers == {}
    assert world.active.endpoint.all_confirmed(world.active.local_id)
    world.run(100.0)
    assert len(world.active.reports) == 1


def test_a_reset_counts_as_answer_to_a_hello_alone(world: World) -> None:
    (pipe,) = world.live
    pipe.to_active.append(encode(RESET))
    world.run(1.0)
    assert world.active.reports == []
    assert world.active.endpoint.counters.malformed == 1
    world.send(world.active, b"on another")
    world.run(2.0)
    assert world.passive.received == [b"on another"]


def test_another_pair_is_refused(world: World) -> None:
    stranger = Stranger(world)
    assert ends(stranger.write(encode_hello(0, world.passive.local_id, 99, NONCE)))
    assert world.passive.endpoint.counters.wrong_pair == 1


def test_a_connection_that_this_side_should_open_is_not_accepted(world: World) -> None:
    hello = encode_hello(0, world.active.local_id, world.passive.local_id, NONCE)
    outputs = world.active.endpoint.step([StreamReceived(SOCKET, 4711, ("203.0.113.5", 5), hello)], world.now)
    assert ends(outputs)
    assert world.active.endpoint.counters.wrong_pair == 1


def test_an_early_hello_waits_for_its_connection(make_world: MakeWorld) -> None:
    world = make_world(opened=False)
    world.open_active()
    world.send(world.active, b"early")
    world.settle()
    assert world.passive.endpoint.counters.early == 1
    world.now = 3.0
    world.open_passive()
    world.settle()
    assert world.passive.received == [b"early"]
    world.run(100.0)
    assert len(world.live) == 1
    assert not world.passive.endpoint._streams._parked


def test_an_early_hello_does_not_wait_for_ever(make_world: MakeWorld) -> None:
    world = make_world(opened=False)
    world.open_active()
    world.run(15.01)
    assert world.passive.endpoint.counters.silent == 1
    assert not world.passive.endpoint._streams._parked
    world.open_passive()
    world.run(15.5)
    world.send(world.active, b"later")
    world.settle()
    assert world.passive.received == [b"later"]


def test_a_connection_closed_between_welcome_and_proof_is_refused(world: World, stranger: Stranger) -> None:
    welcome = stranger.say_hello()
    world.step(world.passive, CloseConnection(world.passive.local_id))
    outputs = stranger.write(stranger.proof(welcome))
    assert [each.data[4] for each in outputs if isinstance(each, SendOnStream)] == [RESET]


def test_the_active_side_believes_no_welcome_without_proof(make_world: MakeWorld) -> None:
    world = make_world(opened=False)
    world.open_passive()
    world.open_active(secret=b"another")
    world.send(world.active, b"for nobody else")
    world.settle()
    assert [type(report) for report in world.active.reports] == [ConnectionFailed]
    assert "its proof is invalid" in world.active.reports[0].reason  # type: ignore[attr-defined]
    assert not any(b"for nobody else" in data for _, data in world.writes)


def test_the_active_side_expects_the_certificate_of_its_target(make_world: MakeWorld) -> None:
    """A man in the middle has another certificate, so the passive side's proof does not fit."""
    world = make_world(opened=False)
    world.open_passive()
    world.target = msgspec.structs.replace(world.target, fingerprint=bytes(32))
    world.open_active()
    world.settle()
    assert world.active.endpoint.counters.forged == 1


def test_an_old_generation_is_refused_and_an_equal_or_newer_one_taken(world: World) -> None:
    world.step(world.passive, ChangePath(world.passive.local_id, ("198.51.100.1", 1), 3))
    old = Stranger(world, 100)
    assert CloseStream(SOCKET, 100) in old.write(encode_hello(2, world.passive.local_id, world.active.local_id, NONCE))
    assert world.passive.endpoint.counters.stale == 1
    for number, generation in ((101, 3), (102, 4)):
        stranger = Stranger(world, number)
        outputs = stranger.write(stranger.proof(stranger.say_hello(generation)))
        assert CancelTimer(("hello", number)) in outputs
    assert CloseStream(SOCKET, 103) in Stranger(world, 103).write(old.hello)


def test_a_generation_that_rises_after_the_hello_fences_its_proof(world: World, stranger: Stranger) -> None:
    welcome = stranger.say_hello(0)
    world.step(world.passive, ChangePath(world.passive.local_id, ("198.51.100.1", 1), 1))
    assert ends(stranger.write(stranger.proof(welcome)))
    assert world.passive.endpoint.counters.stale == 1


def test_a_move_is_announced_in_the_hello(world: World) -> None:
    world.step(world.active, MovedHere(world.active.local_id, 5))
    world.settle()
    assert world.passive.endpoint._connections[world.passive.local_id].peer_generation == 5


def test_a_violation_by_an_authenticated_peer_ends_only_the_tcp_connection(world: World) -> None:
    for frame in (
        encode(DATA, 7, b"a gap"),
        encode_ack(1, 0),
        encode_hello(0, 1, 2, NONCE),
        encode(DATA, 0, bytes(65_537)),
    ):
        before = world.passive.endpoint.counters.malformed
        (pipe,) = world.live
        pipe.to_passive.append(frame)
        world.run(world.now + 20.0)
        assert world.passive.endpoint.counters.malformed == before + 1
    world.send(world.active, b"still")
    world.settle()
    assert world.passive.received == [b"still"]
    assert world.active.reports == world.passive.reports == []


def test_nothing_is_taken_after_the_end(world: World) -> None:
    (pipe,) = world.live
    pipe.to_passive.append(encode(FINISH, 0) + encode(DATA, 1, b"after the end"))
    world.arrive(pipe, world.passive)
    assert world.passive.reports == [PeerFinished(world.passive.local_id)]
    assert world.passive.received == []
    assert world.passive.endpoint.counters.malformed == 1


def test_a_tcp_connection_that_ends_right_after_the_handshake_leaves_nothing_for_the_next(
    make_world: MakeWorld,
) -> None:
    world = make_world(opened=False)
    world.open_passive()
    world.open_active()
    (pipe,) = world.live
    world.arrive(pipe, world.passive)
    pipe.to_active.append(encode_hello(0, 1, 2, NONCE))
    world.run(5.0)
    assert world.active.endpoint.counters.malformed == 1
    assert world.passive.endpoint.counters.forged == world.passive.endpoint.counters.malformed == 0
    world.send(world.active, b"on the next")
    world.settle()
    assert world.passive.received == [b"on the next"]


def test_an_answer_to_nothing_is_ignored(world: World) -> None:
    (pipe,) = world.live
    pipe.to_active.append(encode(PONG))
    pipe.to_passive.append(encode(PONG))
    world.settle()
    assert world.live == [pipe]
    assert world.active.endpoint.rtt_s(world.active.local_id) is None


def test_a_peer_that_forgot_what_it_had_is_not_believed(world: World) -> None:
    world.send(world.passive, b"acknowledged")
    world.settle()
    stranger = Stranger(world)
    assert ends(stranger.write(stranger.proof(stranger.say_hello())))
    assert world.passive.endpoint.counters.malformed == 1
    assert len(world.live) == 1


def test_tables_are_empty_when_all_is_closed(world: World) -> None:
    for side in (world.active, world.passive):
        world.step(side, CloseConnection(side.local_id))
        assert len(side.endpoint._streams) == 0
        assert side.timers == {}


def test_strangers_leave_nothing_behind(world: World, stranger: Stranger) -> None:
    stranger.say_hello()
    outputs = world.passive.endpoint.step([StreamClosed(SOCKET, 4711, "gone")], world.now)
    assert outputs == [CancelTimer(("hello", 4711))]
    assert len(world.passive.endpoint._streams) == 1


def test_other_sockets_are_not_ours(world: World) -> None:
    before = world.passive.endpoint.counters.accepted
    assert world.passive.endpoint.step([StreamReceived("sip", 9, ("203.0.113.5", 5), b"x")], 0.0) == []
    assert world.passive.endpoint.step([StreamClosed("sip", 1, "gone")], 0.0) == []
    assert world.passive.endpoint.counters.accepted == before
    assert len(world.live) == 1


def test_reopening_an_id_ends_the_earlier_connection(world: World) -> None:
    ids = world.passive.local_id, 99
    world.step(world.passive, OpenConnection(*ids, 0, SECRET, None))
    world.run(20.0)
    assert world.passive.endpoint.counters.wrong_pair >= 1
    assert [type(report) for report in world.active.reports] == [ConnectionFailed]


def test_frames_match_the_specification(world: World) -> None:
    reader = FrameReader()
    reader.message_bytes_max = 100
    kinds = [[frame[0] for frame in reader.frames(data)] for _, data in world.writes]
    assert kinds[1] == [WELCOME]
    assert kinds[2][0] == PROOF
    assert kinds[3] == [ACK]
    assert len(decode_welcome(world.writes[1][1][13:])[2]) == 32
