"""Messages over one TCP connection that holds: order, writes, the peer's patience with a slow owner, the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tcp.conftest import SERVER, SOCKET
from wanderbus.errors import LimitExceeded
from wanderbus.machine import StreamReceived
from wanderbus.tcp import (
    CloseConnection,
    ConnectionFailed,
    Consumed,
    FinishSending,
    OpenConnection,
    PeerFinished,
    SendMessage,
    TcpConfig,
    TcpTarget,
)
from wanderbus.tcp.frames import HEADER_BYTES

if TYPE_CHECKING:
    from tests.tcp.conftest import MakeWorld, World


def test_f01_both_ways_in_order(world: World) -> None:
    messages = [b"%d" % n * n for n in range(100)] + [b"", bytes(65_536)]
    for message in messages:
        world.send(world.active, message)
        world.send(world.passive, message)
    world.settle()
    assert world.passive.received == world.active.received == messages
    for side in (world.active, world.passive):
        assert side.endpoint.all_confirmed(side.local_id)
        assert side.endpoint.unsent_bytes(side.local_id) == 0


def test_messages_wait_until_the_connection_is_open(make_world: MakeWorld) -> None:
    world = make_world(opened=False)
    world.open_passive()
    world.open_active()
    world.send(world.passive, b"to the active side")
    world.send(world.active, b"to the passive side")
    assert world.passive.endpoint.unsent_bytes(world.passive.local_id) == len(b"to the active side") + HEADER_BYTES
    world.settle()
    assert (world.active.received, world.passive.received) == ([b"to the active side"], [b"to the passive side"])


def test_one_write_a_step_with_the_ack_in_it(world: World) -> None:
    world.writes.clear()
    world.send(world.passive, b"one", b"two", b"three")
    assert len(world.writes) == 1
    (pipe,) = world.live
    data = b"".join(pipe.to_active)
    pipe.to_active.clear()
    world.writes.clear()
    pieces = [
        StreamReceived(SOCKET, pipe.number, SERVER, data[start : start + 5], "TLS", pipe.target)
        for start in range(0, len(data), 5)
    ]
    world.step(world.active, *[SendMessage(world.active.local_id, b"answer")] * 3, *pieces)
    assert world.active.received == [b"one", b"two", b"three"]
    assert len(world.writes) == 1
    world.settle()
    assert world.passive.endpoint.all_confirmed(world.passive.local_id)
    assert len(world.writes) == 2, "the ACK of the answers; ACKs are not acknowledged"


def test_round_trip_time_is_measured(world: World) -> None:
    assert world.active.endpoint.rtt_s(world.active.local_id) is None
    world.send(world.active, b"one")
    world.now += 0.5
    world.settle()
    assert world.active.endpoint.rtt_s(world.active.local_id) == pytest.approx(0.5)
    world.send(world.active, b"two")
    world.now += 1.3
    world.settle()
    assert world.active.endpoint.rtt_s(world.active.local_id) == pytest.approx(0.6)
    assert world.active.endpoint.rtt_s(4711) is None


def test_a_message_over_the_bound_is_not_sent_nor_the_rest_of_its_batch(make_world: MakeWorld) -> None:
    world = make_world(message_bytes_max=10)
    with pytest.raises(LimitExceeded, match="at most 10") as raised:
        world.send(world.active, b"fits", bytes(11))
    assert raised.value.limit == "message_bytes_max"
    world.settle()
    assert world.passive.received == []


def test_bytes_under_way_are_bounded(make_world: MakeWorld) -> None:
    world = make_world(unacknowledged_bytes_max=1_000)
    world.send(world.active, *[bytes(100)] * 50)
    (pipe,) = world.live
    assert 1_000 <= sum(map(len, pipe.to_passive)) < 1_000 + 100 + HEADER_BYTES
    world.settle()
    assert len(world.passive.received) == 50


def test_waiting_messages_are_bounded(make_world: MakeWorld) -> None:
    world = make_world(unacknowledged_bytes_max=1_000, send_queue_bytes_max=2_000)
    world.send(world.active, *[bytes(100)] * 17)
    assert world.active.reports == []
    failed = ConnectionFailed(world.active.local_id, "too much waits for the other side")
    world.send(world.active, bytes(100))
    assert world.active.reports == [failed]
    assert not world.active.endpoint.all_confirmed(world.active.local_id)
    assert world.active.endpoint.unsent_bytes(world.active.local_id) == 0
    world.send(world.active, b"more")
    assert world.active.reports == [failed]
    assert world.active.endpoint.unsent_bytes(world.active.local_id) == 0


def test_a_slow_owner_stops_the_sender_and_is_no_failure(make_world: MakeWorld) -> None:
    window = 10 * (100 + HEADER_BYTES)
    world = make_world(receive_window_bytes=window, consume_at_once=False)
    world.send(world.active, *[bytes(100)] * 30)
    world.run(100.0)
    assert len(world.passive.received) == 10
    assert world.active.reports == []
    assert world.active.endpoint.unsent_bytes(world.active.local_id) == 20 * (100 + HEADER_BYTES)
    world.step(world.passive, Consumed(world.passive.local_id, 4))
    world.settle()
    assert len(world.passive.received) == 10, "less than half of the window is not worth a word"
    world.step(world.passive, Consumed(world.passive.local_id, 1))
    world.settle()
    assert len(world.passive.received) == 15
    for _ in range(30):
        world.step(world.passive, Consumed(world.passive.local_id, 3))
        world.settle()
    assert len(world.passive.received) == 30
    assert world.active.endpoint.all_confirmed(world.active.local_id)


def test_consuming_more_than_there_was_grants_nothing(make_world: MakeWorld) -> None:
    world = make_world(receive_window_bytes=500, consume_at_once=False)
    world.step(world.passive, Consumed(world.passive.local_id, 1_000_000))
    world.send(world.active, *[bytes(87)] * 30)
    world.settle()
    assert len(world.passive.received) == 5


def test_a_sender_that_waits_for_a_grant_notices_that_the_other_side_is_gone(make_world: MakeWorld) -> None:
    world = make_world(receive_window_bytes=100, consume_at_once=False)
    world.send(world.active, *[bytes(100)] * 3)
    world.run(60.0)
    assert world.active.reports == []
    world.live[0].silent = True
    world.run(60.0 + 15.75 * 1.25 + 0.1)
    assert [type(report) for report in world.active.reports] == [ConnectionFailed]


def test_more_than_was_granted_ends_the_tcp_connection(make_world: MakeWorld) -> None:
    """The sender is one that ignores its grant."""
    world = make_world(receive_window_bytes=200, consume_at_once=False)
    world.active.endpoint._connections[world.active.local_id].sender._grant = 10**9
    world.send(world.active, *[bytes(100)] * 5)
    world.settle()
    assert len(world.passive.received) == 2
    assert world.passive.endpoint.counters.malformed == 1


def test_finish_comes_after_the_last_message_and_once(world: World) -> None:
    world.step(
        world.active,
        SendMessage(world.active.local_id, b"last"),
        FinishSending(world.active.local_id),
        FinishSending(world.active.local_id),
        SendMessage(world.active.local_id, b"too late"),
    )
    assert not world.active.endpoint.all_confirmed(world.active.local_id)
    world.settle()
    assert world.passive.received == [b"last"]
    assert world.passive.reports == [PeerFinished(world.passive.local_id)]
    assert world.active.endpoint.all_confirmed(world.active.local_id)
    world.send(world.passive, b"the other way is open")
    world.settle()
    assert world.active.received == [b"the other way is open"]


def test_requests_for_unknown_ids_are_ignored(world: World) -> None:
    world.step(world.active, SendMessage(4711, b"x"), CloseConnection(4711), FinishSending(4711))
    assert world.active.reports == []


def test_two_channels_to_one_server_have_a_tcp_connection_each(world: World) -> None:
    other = world.active.endpoint.allocate()
    world.step(world.active, OpenConnection(other, 5, 0, b"", TcpTarget("TCP", world.target.address)))
    assert len({pipe.target for pipe in world.live}) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"ack_timeout_s": 0},
        {"hello_s_max": -1},
        {"probe_s_max": 0},
        {"reconnect_min_s": 0},
        {"reconnect_min_s": 5.0},
        {"rtt_gain": 1.5},
        {"unacknowledged_bytes_max": 0},
        {"receive_window_bytes": 0},
        {"message_bytes_max": 0},
        {"send_queue_bytes_max": 10},
        {"keepalive_s": 0},
    ],
)
def test_f10_values_that_cannot_work_are_named(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        TcpConfig(**options)  # type: ignore[arg-type]
