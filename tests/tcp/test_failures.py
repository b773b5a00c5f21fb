"""A peer that is gone, refused or silent is noticed in time, and found again (SPEC F-01, F-07, D-10, G-02)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.tcp.conftest import World
from wanderbus.tcp import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    MovedHere,
    Probe,
    ProbeAnswered,
    TcpConfig,
)

if TYPE_CHECKING:
    from tests.tcp.conftest import MakeWorld, Side

ACK_TIMEOUT_S = 15.75
MOVED_TO = ("198.51.100.7", 5070)


def failures(side: Side) -> list[str]:
    return [report.reason for report in side.reports if isinstance(report, ConnectionFailed)]


def connects(world: World) -> int:
    return world.active.endpoint.counters.opened


@pytest.mark.parametrize("name", ["active", "passive"])
def test_f01_a_silent_path_fails_in_the_time_of_reliable_udp(world: World, name: str) -> None:
    side = getattr(world, name)
    world.run(100.0)
    world.live[0].silent = True
    world.send(side, b"into the void")
    world.run(100.0 + ACK_TIMEOUT_S - 0.01)
    assert failures(side) == []
    world.run(100.0 + ACK_TIMEOUT_S)
    assert failures(side) == ["the other side does not answer"]
    world.run(1_000.0)
    assert len(failures(side)) == 1


@pytest.mark.parametrize("name", ["active", "passive"])
def test_g02_an_idle_side_notices_nothing(world: World, name: str) -> None:
    world.live[0].silent = True
    world.run(1_000.0)
    assert world.active.reports == world.passive.reports == []


def test_every_acknowledgement_renews_the_patience(make_world: MakeWorld) -> None:
    world = make_world(unacknowledged_bytes_max=1)
    (pipe,) = world.live
    world.send(world.active, *[b"slow"] * 10)
    for _ in range(10):
        world.run(world.now + 15.0, settling=False)
        world.arrive(pipe, world.passive)
        world.arrive(pipe, world.active)
    assert failures(world.active) == []
    assert world.passive.received == [b"slow"] * 10


def test_f07_refused_with_something_to_send_fails_at_once(world: World) -> None:
    world.run(50.0)
    world.reachable = False
    world.send(world.active, b"x")
    world.break_pipe(world.live[0])
    world.run(50.25)
    assert failures(world.active) == ["the other side cannot be reached: Connection refused"]


def test_f07_a_closed_port_at_the_beginning(make_world: MakeWorld) -> None:
    world = make_world(opened=False)
    world.reachable = False
    world.open_passive()
    world.open_active()
    world.send(world.active, b"x")
    world.run(0.25)
    assert failures(world.active) == ["the other side cannot be reached: Connection refused"]


def test_an_idle_active_side_reconnects_with_growing_pauses_while_patience_lasts(world: World) -> None:
    world.run(50.0)
    before = connects(world)
    world.reachable = False
    world.break_pipe(world.live[0])
    at: list[float] = []
    while world.now < 100.0:
        world.run(world.now + 0.05)
        at += [world.now] * (connects(world) - before - len(at))
    pauses = [round(later - earlier, 1) for earlier, later in pairwise(at)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert failures(world.active) == ["the other side does not answer"]


def test_an_idle_active_side_comes_back_so_that_the_passive_one_can_send(world: World) -> None:
    world.send(world.active, b"before")
    world.settle()
    world.break_pipe(world.live[0])
    world.send(world.passive, b"after")
    world.settle()
    assert world.active.received == [b"after"], "at once, since the path was good"


def test_a_path_that_breaks_again_and_again_is_not_hammered(world: World) -> None:
    for _ in range(100):
        world.run(world.now + 0.1)
        for pipe in world.live:
            world.break_pipe(pipe)
    assert connects(world) < 10


def test_the_passive_side_waits_for_the_other_to_come_back_and_no_longer(world: World) -> None:
    world.reachable = False
    world.break_pipe(world.live[0])
    world.send(world.passive, b"for who is gone")
    world.run(ACK_TIMEOUT_S - 0.01)
    assert failures(world.passive) == []
    world.run(ACK_TIMEOUT_S)
    assert failures(world.passive) == ["the other side does not answer"]


def test_a_failed_side_neither_sends_nor_delivers_nor_acknowledges(world: World) -> None:
    (pipe,) = world.live
    pipe.silent = True
    world.send(world.passive, b"lost")
    world.run(20.0)
    assert failures(world.passive)
    assert failures(world.active) == []
    world.step(world.active, MovedHere(world.active.local_id, 1))
    world.send(world.active, b"not for a failed side")
    world.send(world.passive, b"too late")
    world.run(19.0 + ACK_TIMEOUT_S)
    assert world.passive.received == world.active.received == []
    assert not world.active.endpoint.all_confirmed(world.active.local_id)
    world.run(21.0 + ACK_TIMEOUT_S)
    assert failures(world.active)


@pytest.mark.parametrize("passive_fails_too", [False, True])
def test_d10_a_probe_of_the_active_side_finds_the_peer_again(world: World, passive_fails_too: bool) -> None:
    world.reachable = False
    world.live[0].silent = True
    world.send(world.active, b"x")
    if passive_fails_too:
        world.send(world.passive, b"x")
    world.run(20.0)
    assert failures(world.active)
    before = connects(world)
    world.step(world.active, Probe(world.active.local_id))
    world.run(30.0)
    assert connects(world) == before + 1, "one try for each probe"
    world.reachable = True
    world.run(40.0)
    assert connects(world) == before + 1
    world.step(world.active, Probe(world.active.local_id))
    world.settle()
    assert world.active.reports[1:] == [ProbeAnswered(world.active.local_id)]
    world.step(world.active, Probe(world.active.local_id))
    world.settle()
    assert world.active.reports[2:] == [ProbeAnswered(world.active.local_id)]
    assert world.active.received == []


def test_d10_a_probe_of_the_passive_side_is_answered_when_the_other_comes(world: World) -> None:
    world.live[0].silent = True
    world.send(world.passive, b"x")
    world.run(20.0)
    assert failures(world.passive)
    world.step(world.passive, Probe(world.passive.local_id))
    world.run(40.0)
    assert len(world.passive.reports) == 1
    world.step(world.active, MovedHere(world.active.local_id, 1))
    world.settle()
    assert world.passive.reports[1:] == [ProbeAnswered(world.passive.local_id)]


def test_a_probe_that_stays_without_answer_is_followed_by_one_on_another_tcp_connection(world: World) -> None:
    world.live[0].silent = True
    world.send(world.active, b"x")
    world.run(20.0)
    world.step(world.active, Probe(world.active.local_id))
    world.live[-1].silent = True
    before = connects(world)
    for _ in range(5):
        world.now += 0.9
        world.step(world.active, Probe(world.active.local_id))
    assert connects(world) == before, "time for an answer"
    world.now += 0.6
    world.step(world.active, Probe(world.active.local_id))
    world.settle()
    assert connects(world) == before + 1
    assert world.active.reports[1:] == [ProbeAnswered(world.active.local_id)]


@pytest.mark.parametrize("name", ["active", "passive"])
def test_a_probe_of_an_open_connection_is_answered_in_silence_or_fails(world: World, name: str) -> None:
    side = getattr(world, name)
    world.step(side, Probe(side.local_id), Probe(side.local_id))
    world.run(100.0)
    assert side.reports == []
    assert side.endpoint.rtt_s(side.local_id) == 0.0
    world.live[0].silent = True
    world.step(side, Probe(side.local_id))
    world.run(100.0 + ACK_TIMEOUT_S)
    assert failures(side) == ["the other side does not answer"]


def test_a_probe_is_not_forgotten_when_the_tcp_connection_breaks(world: World) -> None:
    world.step(world.active, Probe(world.active.local_id))
    world.break_pipe(world.live[0])
    world.reachable = False
    world.run(1.0)
    assert failures(world.active) == ["the other side cannot be reached: Connection refused"]


def test_keepalive_notices_a_silent_path_and_leaves_a_busy_one_alone() -> None:
    world = World(TcpConfig(keepalive_s=30.0), TcpConfig())
    world.open()
    world.writes.clear()
    for _ in range(20):
        world.run(world.now + 10.0)
        world.send(world.active, b"busy")
    world.settle()
    assert len(world.writes) == 40
    world.writes.clear()
    world.run(world.now + 100.0)
    assert len(world.writes) == 2 * 3, "PING and PONG"
    at = world.now
    world.live[0].silent = True
    world.run(at + 30.0 + ACK_TIMEOUT_S)
    assert failures(world.active) == ["the other side does not answer"]
    assert failures(world.passive) == []


def test_a_move_leaves_the_old_tcp_connection_and_goes_on_from_the_new_one_at_once(world: World) -> None:
    (old,) = world.live
    old.silent = True
    world.send(world.active, b"under way")
    world.send(world.passive, b"under way too")
    world.now = 15.0
    world.step(world.active, MovedHere(world.active.local_id, 1))
    assert not old.open
    world.settle()
    assert world.passive.received == [b"under way"]
    assert world.active.received == [b"under way too"]
    assert (world.active.reports, world.passive.reports) == ([], [])


def test_the_same_move_announced_twice_counts_once(world: World) -> None:
    for generation in (1, 1, 0):
        world.step(world.active, MovedHere(world.active.local_id, generation))
    world.settle()
    assert connects(world) == 2


def test_a_changed_path_is_gone_to_at_once_and_an_old_or_equal_one_is_not(world: World) -> None:
    connection = world.active.local_id
    world.step(world.active, ChangePath(connection, MOVED_TO, 2))
    world.settle()
    assert [pipe.target.address for pipe in world.live] == [MOVED_TO]
    before = connects(world)
    world.step(world.active, ChangePath(connection, ("192.0.2.66", 1), 1), ChangePath(connection, MOVED_TO, 2))
    world.settle()
    assert connects(world) == before
    world.send(world.active, b"there")
    world.settle()
    assert world.passive.received == [b"there"]


def test_d10_a_changed_path_gives_fresh_patience(world: World) -> None:
    (pipe,) = world.live
    pipe.silent = True
    world.send(world.passive, b"x")
    world.run(15.0)
    world.step(world.passive, ChangePath(world.passive.local_id, MOVED_TO, 1))
    world.run(15.0 + ACK_TIMEOUT_S - 0.01)
    assert failures(world.passive) == []
    world.run(15.0 + ACK_TIMEOUT_S)
    assert failures(world.passive)


def test_an_answered_move_ends_the_pause_before_the_next_attempt(world: World) -> None:
    world.reachable = False
    world.break_pipe(world.live[0])
    world.run(5.0)
    world.reachable = True
    before = connects(world)
    world.step(world.active, ChangePath(world.active.local_id, world.target.address, 0))
    assert connects(world) == before + 1


def test_a_connection_that_was_given_up_before_it_was_there_is_closed_when_it_is(world: World) -> None:
    """A connection that we open gets its number only when data arrives on it."""
    world.step(world.active, MovedHere(world.active.local_id, 1))
    world.step(world.active, MovedHere(world.active.local_id, 2))
    assert len(world.live) == 2
    world.settle()
    assert len(world.live) == 1
    world.send(world.active, b"x")
    world.settle()
    assert world.passive.received == [b"x"]


def test_a_peer_that_answers_no_hello_fails_in_time(make_world: MakeWorld) -> None:
    world = make_world(opened=False)
    world.open_active()
    world.live[0].silent = True
    world.send(world.active, b"x")
    world.run(ACK_TIMEOUT_S)
    assert failures(world.active) == ["the other side does not answer"]


def test_closing_reports_nothing_and_leaves_no_timer(world: World) -> None:
    world.send(world.active, b"x")
    world.step(world.active, CloseConnection(world.active.local_id))
    assert world.active.timers == {}
    assert world.active.reports == []
    assert world.live == []
