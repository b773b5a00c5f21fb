"""The parts of the simulated world: time, network, disk, nodes (DESIGN rule 3, SPEC U-07)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest

from wanderbus.machine import CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.records import SERVER_LOG
from wanderbus.simulation.disk import SimulatedDisk
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.world import EPOCH_US, SeededRandom, World

A, B = ("10.0.0.1", 1), ("10.0.0.2", 2)


def test_things_happen_in_the_order_of_their_time_and_then_of_asking() -> None:
    world, done = World(1), list[str]()
    for when, what in [(2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")]:
        world.at(when, lambda what=what: done.append(what))  # type: ignore[misc]
    world.run(2.5)
    assert done == ["a", "b", "c"]
    assert world.now == 2.0
    assert world.wall_us == EPOCH_US + 2_000_000
    world.run(9.0, lambda: True)
    assert done == ["a", "b", "c"]


def test_nothing_happens_in_the_past() -> None:
    world, done = World(1), list[float]()
    world.at(5.0, lambda: world.at(1.0, lambda: done.append(world.now)))
    world.run(9.0)
    assert done == [5.0]


def test_u07_the_trace_decides_the_fingerprint() -> None:
    worlds = [World(1, keep_trace=keep) for keep in (True, False, False)]
    for world, what in zip(worlds, ["x", "x", "y"], strict=True):
        world.note("a", what)
    assert worlds[0].fingerprint() == worlds[1].fingerprint() != worlds[2].fingerprint()
    assert (worlds[0].trace, worlds[1].trace) == (["0.000000 a x"], None)


def test_u07_randomness_comes_of_the_seed() -> None:
    drawn = []
    for seed in (1, 1, 2):
        source = SeededRandom(World(seed))
        drawn.append((source.token(8), source.uniform(1.0, 2.0)))
    assert drawn[0] == drawn[1] != drawn[2]
    assert 1.0 <= drawn[0][1] <= 2.0


def test_u07_a_stream_apart_leaves_the_other_draws_as_they_are() -> None:
    plain, used = World(1), World(1)
    drawn = [used.apart(name).random() for name in ("a", "a", "b")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert World(2).apart("a").random() != drawn[0]
    assert plain.random.random() == used.random.random()


def carried(conditions: PathConditions, count: int = 200, *, cut: str = "") -> list[tuple[float, bytes]]:
    """Send numbered datagrams, one a second, from A to B; when each arrived."""
    world = World(3)
    network = Network(world, conditions)
    arrived: list[tuple[float, bytes]] = []
    network.bind(B, lambda source, data: arrived.append((world.now, data)))
    if cut:
        network.cut(cut)
    for n in range(count):
        world.at(float(n), lambda n=n: network.send(A, B, b"%d" % n))  # type: ignore[misc]
    world.run(1e6)
    assert network.delivered == len(arrived)
    return arrived


def test_a_good_network_carries_all_in_time() -> None:
    arrived = carried(PathConditions(delay_min_s=0.1, delay_max_s=0.2))
    assert [data for _, data in arrived] == [b"%d" % n for n in range(200)]
    assert all(0.1 <= at - n <= 0.2 for n, (at, _) in enumerate(arrived))


def test_a_bad_network_loses_repeats_and_reorders() -> None:
    assert carried(PathConditions(loss=1.0)) == []
    assert 80 < len(carried(PathConditions(loss=0.5))) < 120
    assert len(carried(PathConditions(duplication=1.0))) == 400
    overtaken = [int(data) for _, data in carried(PathConditions(spike=0.3, spike_s=5.0))]
    assert sorted(overtaken) == list(range(200)) != overtaken


@pytest.mark.parametrize("ip", [A[0], B[0]])
def test_a_cut_host_neither_sends_nor_receives(ip: str) -> None:
    assert carried(PathConditions(), cut=ip) == []


def test_datagrams_in_flight_to_a_host_that_left_are_lost() -> None:
    world = World(1)
    network = Network(world, PathConditions())
    network.bind(B, lambda source, data: pytest.fail("nobody is there"))
    network.send(A, B, b"x")
    network.unbind(B)
    world.run(1.0)
    assert not network.is_bound(B)


def entry(n: int) -> tuple[int, int, bytes]:
    return (n, 0, b"%d" % n)


def test_the_disk_syncs_in_groups_and_reports_each() -> None:
    world = World(1)
    disk, synced = SimulatedDisk(world), list[int]()
    for n in range(3):
        disk.append(SERVER_LOG, [entry(n)], synced.append)
    assert synced == []
    world.run(1.0)
    assert synced == [1, 3]


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_keeps_what_was_synced_and_some_first_part_of_the_rest(seed: int) -> None:
    world = World(seed)
    disk, synced = SimulatedDisk(world), list[int]()
    disk.append(SERVER_LOG, [entry(n) for n in range(5)], synced.append)
    world.run(1.0)
    disk.append(SERVER_LOG, [entry(n) for n in range(5, 10)], synced.append)
    disk.crash()
    assert disk.log == [entry(n) for n in range(len(disk.log))]
    assert 5 <= len(disk.log) <= 10
    world.run(2.0)
    assert synced == [5], "a sync that the crash broke off must not be told of"


def test_crashes_differ_in_what_they_keep() -> None:
    kept = set()
    for seed in range(20):
        disk = SimulatedDisk(World(seed))
        disk.append(SERVER_LOG, [entry(n) for n in range(3)], lambda durable: None)
        disk.crash()
        kept.add(len(disk.log))
    assert kept == {0, 1, 2, 3}


def _report(synced: list[tuple[str, int]], name: str, durable: int) -> None:
    synced.append((name, durable))


def test_each_log_is_kept_by_its_name() -> None:
    world = World(1)
    disk, synced = SimulatedDisk(world), list[tuple[str, int]]()
    for name, count in (("server", 2), ("channel", 3)):
        reported = partial(_report, synced, name)
        disk.append(name, [entry(n) for n in range(count)], reported)
    world.run(1.0)
    assert set(synced) == {("server", 2), ("channel", 3)}
    disk.append("channel", [entry(3)], lambda durable: None)
    disk.crash()
    assert (len(disk.log), len(disk.logs["channel"])) in {(2, 3), (2, 4)}


def test_rows_are_never_ahead_of_the_durable_log() -> None:
    world = World(1)
    disk = SimulatedDisk(world)
    disk.append(SERVER_LOG, [entry(0)], lambda durable: None)
    disk.save({"sessions": {"a": b"1", "b": b"2"}}, 1)
    assert (disk.rows, disk.rows_offset) == ({}, 0)
    world.run(1.0)
    assert (disk.rows, disk.rows_offset) == ({"sessions": {"a": b"1", "b": b"2"}}, 1)
    disk.append(SERVER_LOG, [entry(1)], lambda durable: None)
    disk.save({"sessions": {"a": None}}, 2)
    disk.crash()
    world.run(2.0)
    assert (disk.rows["sessions"], disk.rows_offset) == ({"a": b"1", "b": b"2"}, 1)
    disk.forget_rows()
    assert (disk.rows, disk.rows_offset) == ({}, 0)


class Echo:
    """A machine that records its inputs and returns the given outputs."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, Input]] = []
        self.answers: list[Output] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        self.heard += [(now, given) for given in inputs]
        answers, self.answers = self.answers, []
        return answers


def test_a_node_sends_from_its_sockets_and_fires_its_timers_as_last_set() -> None:
    world = World(1)
    network = Network(world, PathConditions(delay_min_s=0.5, delay_max_s=0.5))
    one, two = Echo(), Echo()
    reports: list[Output] = []
    left = Node("left", one, {"data": A}, world, network, reports.append)
    Node("right", two, {"other": B}, world, network, reports.append)
    left.perform(
        [
            SendDatagram("data", B, b"x"),
            SendDatagram("none", B, b"y"),
            SetTimer("replaced", 1.0),
            SetTimer("cancelled", 1.0),
            SetTimer("replaced", 2.0),
            CancelTimer("cancelled"),
            Output(),
        ]
    )
    world.run(9.0)
    assert two.heard == [(0.5, DatagramReceived("other", A, b"x"))]
    assert one.heard == [(2.0, TimerFired("replaced"))]
    assert reports == [Output()]


def test_a_killed_node_does_nothing_more_and_a_moved_one_is_elsewhere() -> None:
    world = World(1)
    network = Network(world, PathConditions(delay_min_s=0.5, delay_max_s=0.5))
    machine = Echo()
    node = Node("node", machine, {"data": A}, world, network, lambda output: None)
    node.rebind({"data": B})
    assert (network.is_bound(A), network.is_bound(B)) == (False, True)
    node.perform([SetTimer("late", 1.0)])
    network.send(A, B, b"x")
    node.kill()
    assert not network.is_bound(B)
    node.feed([TimerFired("by hand")])
    world.run(9.0)
    assert machine.heard == []
