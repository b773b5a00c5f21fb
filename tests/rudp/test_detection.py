"""An application's failure detector decides whether the peer of reliable UDP is gone (SPEC G-26)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.detection.detectors import Accrual, Patient, ThreeProbes
from tests.rudp.link import Link
from wanderbus.api.detecting import Observed, Verdict
from wanderbus.detection import DetectorFailed
from wanderbus.rudp import ChangePath, ConnectionFailed, OpenConnection, SendMessage

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair
    from wanderbus.detection import MakeDetector

DEFAULT_S = 15.75
"""Time until the default gives up a peer whose round trip was never measured."""

RTT_S = 0.1


def failed_at(pair: Pair, until: float = 1_000.0) -> float | None:
    """Fire the timers of left, whose peer is silent; return when its connection fails."""
    left = pair.left
    while left.timer_at is not None and left.timer_at <= until:
        now, _ = left.fire()
        if ConnectionFailed(left.local_id) in left.reports:
            return now
    return None


def test_g26_default_of_reliable_udp(pair: Pair) -> None:
    pair.left.send(0.0, b"lost")
    assert failed_at(pair) == DEFAULT_S


@pytest.mark.parametrize("patience_s", [2.0, 600.0], ids=["earlier", "later"])
def test_g26_detector_that_decides_earlier_and_later_than_the_default(make_pair: MakePair, patience_s: float) -> None:
    pair = make_pair(detector=lambda: Patient(patience_s))
    pair.left.send(0.0, b"lost")
    at = failed_at(pair)
    assert at is not None
    assert patience_s <= at <= patience_s + 1.0


def test_g26_packet_that_arrives_long_after_the_default_would_have_given_up(make_pair: MakePair) -> None:
    pair = make_pair(detector=lambda: Patient(600.0))
    pair.left.send(0.0, b"late")
    assert failed_at(pair, until=300.0) is None
    now, sent = pair.left.fire()
    while not sent:
        now, sent = pair.left.fire()
    pair.settle(now, sent)
    assert pair.right.received == [b"late"]
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)


@pytest.mark.parametrize("make", [ThreeProbes, Accrual])
def test_g26_silent_peer_of_an_idle_connection(make_pair: MakePair, make: MakeDetector) -> None:
    pair = make_pair(detector=make)
    link = Link(pair, RTT_S)
    link.send(b"first")
    link.run(60.0)
    assert pair.left.reports == [], "a peer that answers is alive"
    at = failed_at(pair, until=link.now + 60.0)
    assert at is not None, "nothing was sent but probes"
    assert link.now + 2.0 < at < link.now + 30.0


def test_g26_observations_of_probes(make_pair: MakePair) -> None:
    detector = ThreeProbes()
    pair = make_pair(detector=lambda: detector)
    link = Link(pair, RTT_S)
    link.send(b"first")
    link.run(3.5)
    last = detector.asked[-1]
    assert (last.protocol, last.retries, last.probes, last.probed_at) == ("UDP", 0, 0, None)
    assert last.arrived_at == pytest.approx(last.now - 1.0 + RTT_S)
    assert last.round_trip_s == pytest.approx(RTT_S)
    failed_at(pair)
    assert detector.asked[-1].probes == 3
    assert detector.asked[-1].probed_at is not None
    assert detector.asked[-1].retries > 0
    assert detector.asked[-1].waiting_since is not None
    assert detector.asked[-1].waiting_since <= detector.asked[-1].probed_at


def test_g26_wait_that_begins_again_with_another_path(make_pair: MakePair) -> None:
    pair = make_pair(detector=lambda: Patient(20.0))
    pair.left.send(0.0, b"lost")
    assert failed_at(pair, until=15.0) is None
    pair.left.step(15.0, ChangePath(pair.left.local_id, ("192.0.2.7", 7), 1))
    at = failed_at(pair)
    assert at is not None
    assert at >= 15.0 + 20.0


class Faulty:
    """Detector that does what ``answer`` does."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def judge(self, observed: Observed) -> Verdict:
        answer = self._answer(observed) if callable(self._answer) else self._answer
        assert answer is not False, "no verdict"
        return answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "answer",
    [
        False,
        None,
        "gone",
        Verdict("dead"),  # type: ignore[arg-type]
        Verdict(ask_at=-1.0),
        Verdict(ask_at=float("nan")),
        Verdict(ask_at=float("inf")),
        Verdict(ask_at="soon"),  # type: ignore[arg-type]
        Verdict(overdue_s=0.0),
        lambda observed: Verdict(ask_at=observed.now),
    ],
)
def test_g26_default_in_place_of_a_faulty_detector(make_pair: MakePair, answer: Any) -> None:
    pair = make_pair(detector=lambda: Faulty(answer))
    assert [type(each) for each in pair.left.reports] == [DetectorFailed]
    pair.left.reports.clear()
    pair.left.send(0.0, b"lost")
    assert failed_at(pair) == DEFAULT_S
    assert pair.left.reports == [ConnectionFailed(pair.left.local_id)], "it is asked once"


def test_g26_detector_that_cannot_be_made(make_pair: MakePair) -> None:
    def make() -> ThreeProbes:
        raise OSError("no\nmemory")

    pair = make_pair(detector=make)
    assert pair.left.reports == [DetectorFailed(1, "OSError: no memory")]
    pair.left.send(0.0, b"lost")
    assert failed_at(pair) == DEFAULT_S


def test_g26_reports_of_many_faulty_detectors(make_pair: MakePair) -> None:
    pair = make_pair(detector=lambda: Faulty(None))
    left = pair.left
    for number in range(2, 101):
        left.step(0.0, OpenConnection(number, number, ("192.0.2.9", 9), 0, None))
    counts = [report.count for report in left.reports if isinstance(report, DetectorFailed)]
    assert counts == [1, 2, 4, 8, 16, 32, 64]


def test_g26_detector_that_wants_to_be_asked_all_the_time(make_pair: MakePair) -> None:
    asked: list[float] = []

    def judge(observed: Observed) -> Verdict:
        asked.append(observed.now)
        return Verdict("probe", ask_at=observed.now + 1e-9)

    pair = make_pair(detector=lambda: Faulty(judge))
    Link(pair, RTT_S).send(b"first")
    failed_at(pair, until=2.0)
    assert 100 < len(asked) < 300


def test_g26_questions_do_not_grow_with_messages(make_pair: MakePair) -> None:
    detector = ThreeProbes(interval_s=60.0)
    pair = make_pair(detector=lambda: detector)
    for n in range(1_000):
        now = n * 0.001
        pair.settle(now, pair.left.step(now, SendMessage(pair.left.local_id, b"x")))
    assert len(pair.right.received) == 1_000
    assert len(detector.asked) == 1, "at the opening"
