"""Simulated TCP: reliable and ordered while it lives, and most of its failures go unreported (SPEC X37)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from wanderbus.machine import Address, CloseStream, Input, Output, SendOnStream, StreamClosed, StreamReceived
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.world import World

LEFT, RIGHT = ("10.0.0.1", 1), ("10.0.0.2", 2)
DELAY_S = 0.1


class Target(msgspec.Struct, frozen=True):
    address: Address
    transport: str = "TCP"
    server_name: str | None = None
    fingerprint: bytes | None = None
    sip_domain: str | None = None


TO_RIGHT = Target(RIGHT)


class Recorder:
    """A machine that writes down its inputs."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, Any]] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        self.heard += [(now, given) for given in inputs]
        return []

    @property
    def data(self) -> bytes:
        return b"".join(given.data for _, given in self.heard if isinstance(given, StreamReceived))

    @property
    def closed(self) -> list[tuple[float, str]]:
        return [(at, given.reason) for at, given in self.heard if isinstance(given, StreamClosed)]


class Two:
    """Two nodes; the right one listens."""

    def __init__(self, seed: int = 1, **conditions: float) -> None:
        self.world = World(seed)
        given: dict[str, Any] = {"delay_min_s": DELAY_S, "delay_max_s": DELAY_S, **conditions}
        self.network = Network(self.world, PathConditions(**given))
        self.left, self.right = Recorder(), Recorder()
        self.here = self.node("left", self.left, LEFT)
        self.there = self.node("right", self.right, RIGHT)

    def node(self, name: str, machine: Recorder, address: Address) -> Node:
        sockets = {"datagrams": address}
        return Node(name, machine, sockets, self.world, self.network, lambda output: None, streams={"data": address})

    def say(self, data: bytes, connection: int | None = None, target: Target = TO_RIGHT) -> None:
        self.here.perform([SendOnStream("data", target, data, connection)])

    def answer(self, data: bytes, connection: int = 1) -> None:
        self.there.perform([SendOnStream("data", Target(LEFT), data, connection)])

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_once_and_in_order_however_bad_the_way_is(seed: int) -> None:
    two = Two(seed, loss=0.3, delay_min_s=0.001, spike=0.1)
    sent = [bytes([n]) * (n * 7 % 50) for n in range(60)]
    for n, data in enumerate(sent):
        two.world.at(n / 20, lambda data=data: two.say(data))  # type: ignore[misc]
    two.run(600.0)
    assert two.right.data == b"".join(sent)
    assert two.left.heard == []


def test_data_sent_at_once_arrive_after_one_delay() -> None:
    """In pieces of any size, as TCP has many segments in flight; data waiting for the connection is sent when it
    opens.
    """
    for seed in range(20):
        two = Two(seed)
        for data in (b"0123456789", b"abcdefghij"):
            two.say(data)
        two.run(5.0)
        assert two.right.heard[-1][0] == pytest.approx(3 * DELAY_S)
        sent_at = two.world.now
        two.answer(b"0123456789")
        two.run(5.0)
        assert two.left.heard[-1][0] == pytest.approx(sent_at + DELAY_S)


def test_pieces_are_cut_at_random() -> None:
    cuts = set()
    for seed in range(20):
        two = Two(seed)
        two.say(b"0123456789")
        two.run(9.0)
        cuts.add(tuple(given.data for _, given in two.right.heard))
    assert len(cuts) > 3


def test_opening_takes_a_round_trip_and_with_tls_two() -> None:
    for target, round_trips in ((TO_RIGHT, 1), (Target(RIGHT, "TLS"), 2)):
        two = Two()
        two.say(b"x", target=target)
        two.run(9.0)
        (at, received), *_ = two.right.heard
        assert at == pytest.approx((2 * round_trips + 1) * DELAY_S)
        assert received == StreamReceived("data", 1, (LEFT[0], received.source[1]), b"x", target.transport, None)  # type: ignore[arg-type]


def test_answers_come_back_with_the_target_and_its_connection() -> None:
    two = Two()
    two.say(b"x")
    two.run(9.0)
    two.answer(b"yz")
    two.run(9.0)
    assert two.left.data == b"yz"
    assert {(given.connection, given.target) for _, given in two.left.heard} == {(1, TO_RIGHT)}


def test_a_port_where_nobody_listens_refuses_and_an_address_where_nobody_is_does_not_answer() -> None:
    for address, reason, at in (
        ((RIGHT[0], 99), "connection refused", 2 * DELAY_S),
        (("10.9.9.9", 1), "no connection in time", 5.0),
    ):
        two = Two()
        two.say(b"x", target=Target(address))
        two.run(9.0)
        ((closed_at, why),) = two.left.closed
        assert why == reason
        assert closed_at == pytest.approx(at, abs=0.3)


def test_a_listener_with_another_certificate_is_not_talked_to() -> None:
    two = Two()
    two.say(b"x", target=Target(RIGHT, "TLS", fingerprint=b"another"))
    two.run(9.0)
    assert [reason for _, reason in two.left.closed] == ["the certificate is another one"]
    assert two.right.heard == []


def test_a_short_cut_is_silent_and_the_connection_continues() -> None:
    two = Two()
    two.say(b"a")
    two.run(1.0)
    two.network.cut(RIGHT[0])
    two.say(b"b")
    two.run(3.0)
    two.network.mend(RIGHT[0])
    two.run(5.0)
    assert two.right.data == b"ab"
    assert two.left.heard == []


def test_a_long_cut_ends_the_connection_for_the_sender_only() -> None:
    two = Two()
    two.say(b"a")
    two.run(1.0)
    two.network.cut(RIGHT[0])
    two.run(1e4)
    assert two.left.closed == two.right.closed == []
    two.say(b"b")
    two.run(200.0)
    assert [reason for _, reason in two.left.closed] == ["timed out"]
    assert two.right.closed == []
    assert two.right.data == b"a"


def test_a_moving_side_knows_at_once_and_the_other_when_it_sends() -> None:
    two = Two()
    two.say(b"a")
    two.run(1.0)
    two.here.rebind({"datagrams": ("10.0.0.7", 1)}, {"data": ("10.0.0.7", 1)})
    assert [reason for _, reason in two.left.closed] == ["closed here"]
    two.run(1e4)
    assert two.right.closed == []
    two.answer(b"x")
    two.run(200.0)
    assert [reason for _, reason in two.right.closed] == ["timed out"]


def test_a_nat_that_forgets_resets_who_is_behind_it_and_is_silent_to_the_other_side() -> None:
    two = Two()
    two.say(b"a")
    two.run(1.0)
    two.here.lose_mappings()
    two.run(1e3)
    assert two.left.closed == two.right.closed == []
    two.say(b"b", 1)
    two.answer(b"x")
    two.run(1.0)
    assert [reason for _, reason in two.left.closed] == ["reset by the other side"]
    assert two.right.closed == []
    two.run(200.0)
    assert [reason for _, reason in two.right.closed] == ["timed out"]
    assert (two.left.data, two.right.data) == (b"", b"a")


def test_a_killed_process_is_reset_by_its_system_and_reports_nothing() -> None:
    two = Two()
    two.say(b"a")
    two.run(1.0)
    two.there.kill()
    two.say(b"b")
    two.run(1.0)
    assert [reason for _, reason in two.left.closed] == ["reset by the other side"]
    assert two.right.closed == []
    assert len(two.network.listeners) == 1


def test_a_side_cut_off_from_a_killed_peer_is_reset_when_it_sends() -> None:
    two = Two()
    two.say(b"a")
    two.run(1.0)
    two.network.cut(LEFT[0])
    two.there.kill()
    two.run(1.0)
    two.node("right", two.right, RIGHT)
    two.network.mend(LEFT[0])
    two.run(1e3)
    assert two.left.closed == []
    two.say(b"b")
    two.run(1.0)
    assert [reason for _, reason in two.left.closed] == ["reset by the other side"]


def test_closing_is_reported_to_both_sides_and_sending_opens_a_connection() -> None:
    two = Two()
    two.say(b"a")
    two.run(1.0)
    two.here.perform([CloseStream("data", 1), CloseStream("data", 99)])
    two.run(1.0)
    assert [reason for _, reason in two.left.closed] == ["closed here"]
    assert [reason for _, reason in two.right.closed] == ["closed by the other side"]
    two.here.perform([SendOnStream("data", TO_RIGHT, b"lost", 1, reopen=False)])
    two.say(b"b", 1)
    two.run(1.0)
    assert two.right.data == b"ab"
    assert two.right.heard[-1][1].connection == 2


def test_a_connection_without_data_is_not_reported() -> None:
    two = Two()
    two.say(b"")
    two.run(1.0)
    two.here.perform([CloseStream("data", 1)])
    two.run(1.0)
    assert two.right.heard == []
    assert len(two.left.closed) == 1


def test_a_peer_that_takes_nothing_costs_a_bounded_amount() -> None:
    two = Two()
    two.network.cut(RIGHT[0])
    for _ in range(20):
        two.say(bytes(2**16))
    two.run(0.1)
    assert [reason for _, reason in two.left.closed] == ["the other side does not take what is sent"]


def test_with_port_0_a_socket_opens_connections_and_accepts_none() -> None:
    two, caller, ip = Two(), Recorder(), "10.0.0.3"
    sockets, streams = {"datagrams": (ip, 1)}, {"data": (ip, 0)}
    node = Node("caller", caller, sockets, two.world, two.network, lambda output: None, streams=streams)
    node.perform([SendOnStream("data", TO_RIGHT, b"x")])
    two.say(b"y", target=Target((ip, 0)))
    two.run(1.0)
    assert two.right.data == b"x"
    assert [reason for _, reason in two.left.closed] == ["connection refused"]


def test_one_of_the_connections_of_a_socket_is_closed() -> None:
    two = Two()
    two.there.close_any_stream("data")
    for name in ("one", "other"):
        two.say(b"a", target=Target(RIGHT, server_name=name))
    two.run(1.0)
    two.there.close_any_stream("datagrams")
    two.there.close_any_stream("data")
    two.run(1.0)
    assert [reason for _, reason in two.left.closed] == ["closed by the other side"]
    assert [reason for _, reason in two.right.closed] == ["closed here"]
