"""An application's failure detector decides whether the peer of a connection over TCP is gone (SPEC G-26)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.detection.detectors import Accrual, Patient, ThreeProbes
from wanderbus.api.detecting import Observed, Verdict
from wanderbus.detection import DetectorFailed
from wanderbus.tcp import ConnectionFailed, TcpConfig

if TYPE_CHECKING:
    from tests.tcp.conftest import MakeWorld, World
    from wanderbus.detection import MakeDetector

DEFAULT_S = TcpConfig().ack_timeout_s


def failed_at(world: World, until: float) -> float | None:
    """Let time pass; return when the connection of the active side fails."""
    while world.now < until:
        world.run(world.now + 0.25)
        if any(isinstance(report, ConnectionFailed) for report in world.active.reports):
            return world.now
    return None


@pytest.mark.parametrize("patience_s", [2.0, 600.0], ids=["earlier", "later"])
def test_g26_detector_that_decides_earlier_and_later_than_the_default(make_world: MakeWorld, patience_s: float) -> None:
    world = make_world(detector=lambda: Patient(patience_s))
    world.run(100.0)
    world.live[0].silent = True
    world.send(world.active, b"into the void")
    at = failed_at(world, 2_000.0)
    assert at is not None
    assert patience_s <= at - 100.0 <= patience_s + 1.25


def test_g26_message_that_arrives_long_after_the_default_would_have_given_up(make_world: MakeWorld) -> None:
    world = make_world(detector=lambda: Patient(600.0))
    pipe = world.live[0]
    world.send(world.active, b"late")
    world.run(300.0, settling=False)
    assert world.active.reports == []
    world.arrive(pipe, world.passive)
    world.arrive(pipe, world.active)
    assert world.passive.received == [b"late"]
    assert world.active.endpoint.all_confirmed(world.active.local_id)


def test_g26_peer_that_refuses_for_longer_than_the_default_accepts(make_world: MakeWorld) -> None:
    asked: list[Observed] = []

    class Noting(Patient):
        def judge(self, observed: Observed) -> Verdict:
            asked.append(observed)
            return super().judge(observed)

    world = make_world(detector=lambda: Noting(600.0))
    world.reachable = False
    world.send(world.active, b"x")
    world.break_pipe(world.live[0])
    assert failed_at(world, 100.0) is None, "a refusal is an observation, and no decision"
    world.reachable = True
    world.run(110.0)
    assert world.passive.received == [b"x"]
    assert any(each.is_refused for each in asked)
    world.live[0].silent = True
    world.send(world.active, b"y")
    world.run(120.0)
    assert not asked[-1].is_refused, "it can be reached again"


def test_g26_refusal_that_the_detector_sees(make_world: MakeWorld) -> None:
    class AtOnce:
        def judge(self, observed: Observed) -> Verdict:
            return Verdict("gone" if observed.is_refused else "alive")

    world = make_world(detector=AtOnce)
    world.reachable = False
    world.send(world.active, b"x")
    world.break_pipe(world.live[0])
    assert failed_at(world, 5.0) is not None
    (failure,) = [report for report in world.active.reports if isinstance(report, ConnectionFailed)]
    assert failure.reason == "the other side cannot be reached: Connection refused"


@pytest.mark.parametrize("make", [ThreeProbes, Accrual])
def test_g26_silent_peer_of_an_idle_connection(make_world: MakeWorld, make: MakeDetector) -> None:
    world = make_world(detector=make)
    assert failed_at(world, 60.0) is None, "a peer that answers is alive"
    world.live[0].silent = True
    at = failed_at(world, 120.0)
    assert at is not None, "nothing was sent but probes"
    assert 62.0 < at < 90.0


def test_g26_observations_of_probes(make_world: MakeWorld) -> None:
    detector = ThreeProbes()
    world = make_world(detector=lambda: detector)
    world.run(10.5)
    assert [(each.protocol, each.retries, each.probes) for each in detector.asked[2:]] == [("TCP", 0, 0)] * 9
    assert detector.asked[-1].arrived_at == pytest.approx(9.0)
    world.live[0].silent = True
    assert failed_at(world, 20.0) is not None
    assert [each.probes for each in detector.asked[-4:]] == [0, 1, 2, 3]
    assert detector.asked[-1].waiting_since == pytest.approx(11.0)


@pytest.mark.parametrize("answer", [None, Verdict(ask_at=-1.0), Verdict("dead")])  # type: ignore[arg-type]
def test_g26_default_in_place_of_a_faulty_detector(make_world: MakeWorld, answer: Any) -> None:
    class Faulty:
        def __init__(self) -> None:
            self._asked = 0

        def judge(self, _: Observed) -> Verdict:
            self._asked += 1
            return Verdict(overdue_s=3.0) if self._asked == 1 else answer

    world = make_world(detector=Faulty)
    world.run(100.0)
    world.live[0].silent = True
    world.send(world.active, b"into the void")
    world.run(100.0 + DEFAULT_S - 0.01)
    assert [type(report) for report in world.active.reports] == [DetectorFailed], "it was asked after 3 s"
    world.run(100.0 + DEFAULT_S)
    assert isinstance(world.active.reports[-1], ConnectionFailed), "the wait counts from its beginning"


def test_g26_questions_do_not_grow_with_messages(make_world: MakeWorld) -> None:
    detector = ThreeProbes(interval_s=60.0)
    world = make_world(detector=lambda: detector)
    for _ in range(1_000):
        world.send(world.active, b"x")
        world.settle()
        world.now += 0.001
    assert len(world.passive.received) == 1_000
    assert len(detector.asked) == 1, "at the opening"
