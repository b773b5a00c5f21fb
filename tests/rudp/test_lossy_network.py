"""Two endpoints over a network that loses, repeats, delays and reorders: once and in order (SPEC F-08, X16)."""

from __future__ import annotations

import heapq
from random import Random
from typing import TYPE_CHECKING

import pytest

from wanderbus.machine import Address, DatagramReceived, Input, SendDatagram, TimerFired
from wanderbus.rudp import ChangePath, ConnectionFailed, MovedHere, PathChanged, SendMessage

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair, Side


class World:
    """One heap of future events; a datagram to an address without an owner is lost."""

    def __init__(self, pair: Pair, seed: int, loss: float) -> None:
        self.pair = pair
        self.random = Random(seed)
        self.loss = loss
        self.now = 0.0
        self.at_address: dict[Address, Side] = {pair.left.address: pair.left, pair.right.address: pair.right}
        self._heap: list[tuple[float, int, Side | Address, Input]] = []
        self._order = 0

    def later(self, delay_s: float, who: Side | Address, what: Input) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._order, who, what))

    def carry(self, source: Address, datagram: SendDatagram) -> None:
        """Lose 30 %, repeat 5 %, delay each copy by 1 to 60 ms of its own, which reorders."""
        random = self.random
        if random.random() < self.loss:
            return
        for _ in range(2 if random.random() < 0.05 else 1):
            self.later(
                random.uniform(0.001, 0.06), datagram.destination, DatagramReceived("data", source, datagram.data)
            )

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, who, what = heapq.heappop(self._heap)
            side = self.at_address.get(who) if isinstance(who, tuple) else who
            if side is None:
                continue
            if isinstance(what, TimerFired):
                if side.timer_at is None or side.timer_at > self.now:
                    continue
                side.timer_at = None
            before = side.timer_at
            for datagram in side.step(self.now, what):
                self.carry(side.address, datagram)
            if side.timer_at is not None and side.timer_at != before:
                self.later(side.timer_at - self.now, side, TimerFired(side.local_id))
        assert not self._heap or self._heap[0][0] > until


def messages_for(random: Random, count: int) -> list[bytes]:
    return [random.randbytes(random.choice([0, 1, 40, 100, 100, 1164, 4000])) for _ in range(count)]


def move_right(world: World, address: Address) -> None:
    """The right side gets another address; the left one hears of it 150 ms later, as through a re-INVITE."""
    pair = world.pair
    del world.at_address[pair.right.address]
    pair.right.address = address
    world.at_address[address] = pair.right
    world.later(0.0, pair.right, MovedHere(pair.right.local_id, 1))
    world.later(0.0, pair.right, ChangePath(pair.right.local_id, pair.left.address, 1))
    world.later(0.15, pair.left, ChangePath(pair.left.local_id, address, 1))


@pytest.mark.parametrize("seed", range(200))
def test_x16_every_message_once_and_in_order_both_ways(make_pair: MakePair, seed: int) -> None:
    """Half of the seeds also move one side in the middle (DESIGN 6.1), half are sealed, half change keys often."""
    print("seed", seed)
    pair = make_pair(
        seed, sealed=seed % 4 >= 2, announcing=True, retries_max=50, rekey_packets=10 if seed & 4 else 2**20
    )
    world = World(pair, seed, loss=0.3)
    expected = {}
    for side in (pair.left, pair.right):
        expected[side.local_id] = messages_for(world.random, 25)
        for message in expected[side.local_id]:
            world.later(world.random.uniform(0.0, 1.0) // 0.1 * 0.1, side, SendMessage(side.local_id, message))
    # Inputs of one instant keep the order in which they were scheduled, those of others do not.
    for side in (pair.left, pair.right):
        due = sorted((at, order, what) for at, order, who, what in world._heap if who is side)
        expected[side.local_id] = [what.payload for _, _, what in due if isinstance(what, SendMessage)]
    if seed % 2:
        world.run(0.5)
        move_right(world, ("198.51.100.1", 4242))
    world.run(600.0)
    assert pair.right.received == expected[pair.left.local_id]
    assert pair.left.received == expected[pair.right.local_id]
    assert pair.left.timer_at is pair.right.timer_at is None
    for side in (pair.left, pair.right):
        (connection,) = side.endpoint._connections.values()
        assert connection.sender.packets_in_flight == connection.receiver.held_bytes == 0
        assert not connection.sender._earlier
        assert connection.sender.unconfirmed_bytes == 0


@pytest.mark.parametrize("seed", range(40))
def test_rebinding_amid_loss_moves_the_path_and_loses_nothing(make_pair: MakePair, seed: int) -> None:
    """The right side's address changes without signalling: challenges find it (RFC 9000 9.3)."""
    print("seed", seed)
    pair = make_pair(seed, sealed=seed % 2 == 1, retries_max=50)
    world, rebound = World(pair, seed, loss=0.2), ("198.51.100.1", 4242)
    messages = [b"%d" % n for n in range(100)]
    for n, message in enumerate(messages):
        world.later(n / 50, pair.left, SendMessage(pair.left.local_id, message))
        world.later(n / 50, pair.right, SendMessage(pair.right.local_id, message))
    world.run(1.0)
    del world.at_address[pair.right.address]
    pair.right.address, world.at_address[rebound] = rebound, pair.right
    world.run(600.0)
    assert pair.left.received == pair.right.received == messages
    assert PathChanged(pair.left.local_id, rebound) in pair.left.reports
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)


@pytest.mark.parametrize("seed", range(100))
def test_f06_a_bad_path_does_not_kill_a_living_connection(make_pair: MakePair, seed: int) -> None:
    """30 % loss both ways, the default retries, and always something to send: decision 0014."""
    print("seed", seed)
    pair = make_pair(seed)
    world = World(pair, seed, loss=0.3)
    messages = [b"%d" % n for n in range(400)]
    for n, message in enumerate(messages):
        world.later(n / 20, pair.left, SendMessage(pair.left.local_id, message))
    world.run(20.0)
    assert not [report for report in pair.left.reports if isinstance(report, ConnectionFailed)]
    world.run(600.0)
    assert pair.right.received == messages


@pytest.mark.parametrize("seed", range(20))
def test_f06_a_failing_connection_delivers_a_prefix(make_pair: MakePair, seed: int) -> None:
    pair = make_pair(seed, retries_max=1)
    world = World(pair, seed, loss=0.7)
    messages = [b"%d" % n for n in range(200)]
    for n, message in enumerate(messages):
        world.later(n / 100, pair.left, SendMessage(pair.left.local_id, message))
    world.run(100.0)
    assert ConnectionFailed(pair.left.local_id) in pair.left.reports
    assert pair.right.received == messages[: len(pair.right.received)]


def test_the_same_seed_gives_the_same_history(make_pair: MakePair) -> None:
    histories = []
    for _ in range(2):
        pair = make_pair(3, retries_max=50)
        world = World(pair, 3, loss=0.3)
        for n in range(50):
            world.later(n / 50, pair.left, SendMessage(pair.left.local_id, bytes(n)))
        world.run(600.0)
        histories.append((pair.left.endpoint.counters, pair.right.endpoint.counters, pair.right.reports))
    assert histories[0] == histories[1]
