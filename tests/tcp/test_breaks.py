"""TCP connections that break at any byte: every message arrives once and in order over the next one (SPEC X37)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tcp.conftest import SERVER, SOCKET, World
from wanderbus.machine import StreamClosed, StreamReceived
from wanderbus.tcp import ChangePath, Consumed, FinishSending, MovedHere, PeerFinished, TcpConfig
from wanderbus.tcp.frames import PING, PONG, encode

if TYPE_CHECKING:
    from tests.tcp.conftest import Side

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "arrive", "arrive", "break", "move", "silence", "wait"]),
        st.booleans(),
        st.integers(0, 300),
    ),
    max_size=60,
)


class History:
    """A world with the messages sent in it, and the actions on it."""

    def __init__(self, seed: int = 0, **options: int) -> None:
        patient = TcpConfig(ack_timeout_s=1_000.0, hello_s_max=1_000.0, **options)  # type: ignore[arg-type]
        self.world = World(patient, seed=seed)
        self.world.open_passive()
        self.world.open_active()
        self.sent: dict[int, list[bytes]] = {self.world.active.local_id: [], self.world.passive.local_id: []}
        self.generation = 0

    def act(self, what: str, first: bool, amount: int) -> None:
        world = self.world
        side = world.active if first else world.passive
        pipe = world.live[-1] if world.live else None
        if what == "send":
            message = b"%d:" % len(self.sent[side.local_id]) + bytes(amount)
            self.sent[side.local_id].append(message)
            world.send(side, message)
        elif what == "arrive" and pipe:
            world.arrive(pipe, side, amount)
        elif what == "break" and pipe:
            # One that breaks before the WELCOME is a failure to connect, and SPEC F-07 another story.
            while not world.is_proven(pipe):
                world.arrive(pipe, world.passive)
                world.arrive(pipe, world.active)
            world.break_pipe(pipe)
        elif what == "move":
            self._move(first)
        elif what == "silence" and pipe:
            pipe.silent = True
            self._move(first)
        elif what == "wait":
            world.run(world.now + amount / 100, settling=False)

    def _move(self, signalled_first: bool) -> None:
        self.generation += 1
        world = self.world
        change = ChangePath(world.passive.local_id, ("198.51.100.1", 1), self.generation)
        if signalled_first:
            world.step(world.passive, change)
        world.step(world.active, MovedHere(world.active.local_id, self.generation))
        if not signalled_first:
            world.step(world.passive, change)

    def end(self) -> None:
        self.world.run(self.world.now + 30.0)

    def check(self) -> None:
        for side, other in self._sides:
            assert side.received == self.sent[other.local_id]
            assert other.endpoint.all_confirmed(other.local_id)
            assert side.reports == []

    @property
    def _sides(self) -> list[tuple[Side, Side]]:
        return [(self.world.active, self.world.passive), (self.world.passive, self.world.active)]


@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_x37_once_and_in_order_wherever_it_breaks(actions: list[tuple[str, bool, int]]) -> None:
    history = History(unacknowledged_bytes_max=1_000, receive_window_bytes=1_500)
    for action in actions:
        history.act(*action)
    history.end()
    history.check()


@pytest.mark.parametrize("seed", range(30))
def test_long_histories(seed: int) -> None:
    random = Random(seed)
    history = History(seed, unacknowledged_bytes_max=3_000)
    actions = ["send"] * 10 + ["arrive"] * 10 + ["break", "move", "silence", "wait"]
    for _ in range(600):
        history.act(random.choice(actions), random.random() < 0.5, random.randrange(300))
    history.end()
    history.check()
    assert history.world.active.endpoint.counters.resumed > 0
    assert history.world.passive.endpoint.counters.repeated > 0


@pytest.mark.parametrize("cut", range(0, 240, 3))
def test_a_break_at_every_place_of_a_burst_both_ways(cut: int) -> None:
    world = World(TcpConfig())
    world.open()
    messages = [b"%d" % n for n in range(10)]
    world.send(world.active, *messages)
    world.send(world.passive, *messages)
    pipe = world.live[0]
    world.arrive(pipe, world.passive, cut)
    world.arrive(pipe, world.active, cut // 2)
    world.break_pipe(pipe)
    world.run(5.0)
    assert world.passive.received == world.active.received == messages


def test_finish_and_grants_survive_a_break() -> None:
    world = World(TcpConfig(consume_at_once=False, receive_window_bytes=100))
    world.open()
    world.send(world.active, *[bytes(40)] * 6)
    world.step(world.active, FinishSending(world.active.local_id))
    world.settle()
    for _ in range(8):
        world.break_pipe(world.live[0])
        world.step(world.passive, Consumed(world.passive.local_id, 1))
        world.run(world.now + 5.0)
    assert world.passive.received == [bytes(40)] * 6
    assert world.passive.reports == [PeerFinished(world.passive.local_id)]
    assert world.active.endpoint.all_confirmed(world.active.local_id)


def test_a_message_that_arrived_unacknowledged_is_not_sent_again() -> None:
    world = World(TcpConfig())
    world.open()
    world.send(world.active, b"one")
    pipe = world.live[0]
    world.arrive(pipe, world.passive)
    world.break_pipe(pipe)
    world.run(1.0)
    assert world.passive.received == [b"one"]
    assert world.active.endpoint.all_confirmed(world.active.local_id)
    assert world.active.endpoint.counters.repeated == 0
    assert world.active.endpoint.counters.resumed == world.passive.endpoint.counters.resumed == 1


def test_repetitions_do_not_use_up_the_grant() -> None:
    world = World(TcpConfig(receive_window_bytes=300))
    world.open()
    messages = [b"%d" % n + bytes(100) for n in range(10)]
    world.send(world.active, *messages)
    for _ in range(10):
        world.break_pipe(world.live[0])
        while not world.live or not world.is_proven(world.live[0]):
            world.run(world.now + 0.25, settling=False)
            for pipe in world.live:
                world.arrive(pipe, world.passive, 200)
                world.arrive(pipe, world.active)
    world.run(world.now + 10.0)
    assert world.passive.received == messages


def test_the_round_trip_is_that_of_the_present_tcp_connection() -> None:
    world = World(TcpConfig())
    world.open()
    world.send(world.active, b"one")
    world.arrive(world.live[0], world.passive)
    world.break_pipe(world.live[0])
    world.run(10.0)
    assert world.active.endpoint.all_confirmed(world.active.local_id)
    assert world.active.endpoint.rtt_s(world.active.local_id) is None


def test_a_ping_is_answered_where_it_came_or_not_at_all() -> None:
    world = World(TcpConfig())
    world.open()
    (pipe,) = world.live
    ping = StreamReceived(SOCKET, pipe.number, SERVER, encode(PING), "TLS", pipe.target)
    pipe.open = False
    world.step(world.active, ping, StreamClosed(SOCKET, pipe.number, "reset", pipe.target))
    world.writes.clear()
    world.run(10.0)
    assert world.writes
    assert not [data for side, data in world.writes if side is world.active and encode(PONG) in data]


def test_a_move_outdoes_an_attempt_that_failed_in_the_same_batch() -> None:
    world = World(TcpConfig())
    world.open_passive()
    world.open_active()
    world.send(world.active, b"x")
    (pipe,) = world.live
    pipe.open = False
    world.step(
        world.active,
        StreamClosed(SOCKET, pipe.number, "closed here", pipe.target),
        MovedHere(world.active.local_id, 1),
    )
    world.settle()
    assert world.active.reports == []
    assert world.passive.received == [b"x"]
