"""Order within one step of the access server: the log first, and the time of a batch before it (DESIGN 5.8, 8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tests.client.town import Phone, Town, connected
from wanderbus.broker.messages import Append, Appended, DialogChanged, LinkClosed, LinkOpened, MessageArrived
from wanderbus.client.machine.messages import Disconnect
from wanderbus.machine import (
    ClockRead,
    Input,
    Output,
    TimerFired,
)
from wanderbus.peers.parts import BROKER
from wanderbus.records import SERVER_LOG


@pytest.fixture
def town() -> Town:
    return Town()


class Watched:
    """Inputs and outputs of a town's access server, batch by batch, and its broker's inputs in each."""

    def __init__(self, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[tuple[list[Input], list[list[Input]], list[Output]]] = []
        access, broker = town.access, town.access.broker
        step, broker_step = access.step, broker.step
        calls: list[list[Input]] = []

        def watched(inputs: Iterable[Input], now: float) -> Sequence[Output]:
            batch = list(inputs)
            calls.clear()
            outputs = step(batch, now)
            self.batches.append((batch, list(calls), outputs))
            return outputs

        def noted(inputs: Iterable[Input], now: float) -> Sequence[Output]:
            calls.append(list(inputs))
            return broker_step(calls[-1], now)

        monkeypatch.setattr(access, "step", watched)
        parts = access._parts._parts
        monkeypatch.setitem(parts, BROKER, (noted, parts[BROKER][1]))


def test_design_8_the_log_is_asked_for_before_anything_else(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk can work while the rest is done."""
    alice, bob = connected(town), connected(town, "bob", number=2)
    watched = Watched(town, monkeypatch)
    for n in range(5):
        alice.publish(n)
        bob.publish(n)
        town.run(0.3)
    Phone(town, "carol", number=3).connect()
    asked = [outputs for _, _, outputs in watched.batches if any(isinstance(output, Append) for output in outputs)]
    assert any(len({type(output) for output in outputs}) > 1 for outputs in asked)
    for outputs in asked:
        kinds = [isinstance(output, Append) for output in outputs]
        assert kinds == sorted(kinds, reverse=True)


def test_design_5_8_the_broker_receives_the_time_of_a_batch_first(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    watched = Watched(town, monkeypatch)
    alice.publish(1)
    town.run(1.0)
    town.network.cut(alice.ip)
    bob.publish(2)
    town.run(300.0)
    town.network.mend(alice.ip)
    town.run(30.0)
    bob.node.feed([Disconnect()])
    town.run(2.0)
    kinds = {type(each) for _, calls, _ in watched.batches for call in calls for each in call}
    assert kinds >= {Appended, MessageArrived, LinkClosed, LinkOpened, DialogChanged, TimerFired}
    for batch, calls, _ in watched.batches:
        received = [each for call in calls for each in call]
        if received:
            assert received[0] == batch[0]
            assert [each for each in received if isinstance(each, ClockRead)] == [batch[0]]


def test_design_5_8_the_time_of_a_batch_is_passed_once(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later batch would take it for its own time."""
    town.run(5.0)
    watched, clock = Watched(town, monkeypatch), ClockRead(town.world.wall_us)
    town.access.step([clock, Appended(SERVER_LOG, 0), Appended(SERVER_LOG, 0)], town.world.now)
    town.access.step([clock], town.world.now)
    town.access.step([Appended(SERVER_LOG, 0)], town.world.now + 60.0)
    calls = [calls for _, calls, _ in watched.batches]
    assert calls == [[[clock, Appended(SERVER_LOG, 0)], [Appended(SERVER_LOG, 0)]], [], [[Appended(SERVER_LOG, 0)]]]
