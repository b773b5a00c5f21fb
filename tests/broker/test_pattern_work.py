"""The work of patterns is counted and charged to their owners: nobody else waits for it (SPEC T-07, U-02)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.broker.desk import ALICE, BOB, START_US, Desk
from tests.broker.test_detections import check_state, detected, subscribe
from wanderbus.broker.patterns.pattern_work import TURN_UNITS
from wanderbus.machine import Input, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.patterns import evaluation
from wanderbus.patterns.automaton import MatchNode
from wanderbus.protocol import Notify, NotifyGap, Unsubscribe
from wanderbus.records import Dropped
from wanderbus.refusals import Limited
from wanderbus.subscription import Subscription

SUMS = " + ".join(["(" + " + ".join(["sum(A.v)"] * 52) + ")"] * 28)
COSTLY = f"match A{{1,1000}}: x then B: y where (({SUMS}) == 1.5) within 1 hours"
PAIRS = "pattern pairs match A: a then B: b where (B.v >= A.v) within 1 hour"


class Watched(Desk):
    """A desk that notes what its broker reports about limits, and the events that each step looks for."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.limited: list[Limited] = []
        self.searched = 0
        self.most_searched = 0
        """Most events of partial matches that one step has looked at."""
        super().__init__(config or BrokerConfig())

    def step(self, *inputs: Input) -> list[Output]:
        before = self.searched
        outputs = super().step(*inputs)
        self.most_searched = max(self.most_searched, self.searched - before)
        self.limited += [each for each in outputs if isinstance(each, Limited)]
        return outputs


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A desk that counts what conditions look at."""
    desk = Watched()
    gather = evaluation._taken

    def counted(node: MatchNode | None, step: int) -> list[MatchNode]:
        desk.searched += 0 if node is None else node.length
        return gather(node, step)

    monkeypatch.setattr(evaluation, "_taken", counted)
    return desk


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_US / 1e6 + seconds, UTC)


def gaps(desk: Desk, link: int, wanted: Subscription) -> list[str]:
    """Return the reasons of what was dropped for a subscription; its device knows of it."""
    dropped = [each.reason for each in desk.written(Dropped) if wanted.id in each.subscriptions]
    known = {loss.reason for each in desk.received(link, NotifyGap) for loss in each.lost}
    assert known == set(dropped)
    return dropped


def test_a_costly_condition_becomes_a_gap_of_its_owner_and_nobody_waits_for_it(desk: Watched) -> None:
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    wanted = subscribe(desk, alice, COSTLY, "pattern")
    for n in range(36):
        desk.publish(bob, n, "x", v=1.0)
        desk.later(0.01)
    for n in range(2):
        desk.publish(bob, 50 + n, "y", v=1.0)
        desk.later(0.01)
    desk.later(60)
    assert desk.most_searched < TURN_UNITS
    assert gaps(desk, alice, wanted) == ["pattern_work_max"] * 2
    assert ("broker.pattern_work_max", ALICE) in {(each.limit, each.party) for each in desk.limited}
    desk.searched = 0
    check_state(desk)
    assert desk.searched == 0, "a restart evaluates nothing that was left out"


def test_patterns_beyond_the_work_of_their_owner_are_matched_later_and_nothing_is_lost(desk: Watched) -> None:
    desk.config = BrokerConfig(user_pattern_work_per_s=50_000)
    desk.restart()
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    wanted = subscribe(desk, alice, PAIRS, "pairs")
    for n in range(60):
        desk.publish(bob, n, "a", v=n)
    desk.publish(bob, 60, "b", v=100)
    desk.later(0.1)
    before = len(desk.received(alice, Notify))
    assert before < 30
    assert {(each.limit, each.party) for each in desk.limited} == {("broker.user_pattern_work_per_s", ALICE)}
    assert any(each.steps is not None for each in detected(desk))
    check_state(desk)
    desk.save()
    desk.config = BrokerConfig()
    desk.restart(with_rows=True)
    desk.later(10)
    alice = desk.attach(epoch=2)
    desk.later(10)
    assert len(desk.received(alice, Notify)) == 60
    assert not gaps(desk, alice, wanted)
    check_state(desk)


def test_another_users_pattern_does_not_wait_for_the_work_of_the_first_one(desk: Watched) -> None:
    desk.config = BrokerConfig(user_pattern_work_per_s=50_000)
    desk.restart()
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    for n in range(100):
        subscribe(desk, alice, f"pattern p{n} match A: a within 1 hour", f"p{n}")
    subscribe(desk, bob, PAIRS, "pairs")
    desk.publish(bob, 1, "a", v=1)
    desk.publish(bob, 2, "b", v=2)
    desk.later(0.05)
    assert len(desk.received(bob, Notify)) == 1
    assert len(desk.received(alice, Notify)) < 50
    desk.later(60)
    assert len(desk.received(alice, Notify)) == 100
    check_state(desk)


def test_a_detection_whose_values_take_too_much_work_becomes_a_gap(desk: Watched) -> None:
    desk.config = BrokerConfig(pattern_work_max=50_000)
    desk.restart()
    alice = desk.attach()
    values = ", ".join(f"n{n} = {'+'.join(['sum(A.v)'] * 20)}" for n in range(60))
    wanted = subscribe(desk, alice, f"match A: a then B: b within 1 hour emit found with {values}", "found")
    desk.publish(alice, 1, "a", v=1)
    desk.publish(alice, 2, "b", v=1)
    desk.later(1)
    assert gaps(desk, alice, wanted) == ["pattern_work_max"]
    assert desk.searched == 0
    check_state(desk)


def test_matches_of_events_that_waited_are_bounded_as_the_events_are(desk: Watched) -> None:
    desk.config = BrokerConfig(user_pattern_events_max=300)
    desk.restart()
    alice = desk.attach()
    text = "match A{1,1000}: a then B: b within 1 hour on event time at lateness 1 minute"
    wanted = subscribe(desk, alice, text, "pattern")
    desk.later(600)
    for n in range(200):
        desk.publish(alice, n, "a", at=at(n))
    desk.publish(alice, 500, "c", at=at(500))
    desk.publish(alice, 501, "a", at=at(500))
    desk.later(60)
    assert desk.broker.state.patterns.kept_of(ALICE) < 400
    assert set(gaps(desk, alice, wanted)) == {"user_pattern_events_max"}
    check_state(desk)


def test_a_subscription_that_ends_without_work_for_its_events_gets_a_gap(desk: Watched) -> None:
    desk.config = BrokerConfig(user_pattern_work_per_s=100)
    desk.restart()
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    wanted = subscribe(desk, alice, PAIRS, "pairs")
    for n in range(5):
        desk.publish(bob, n, "a", v=n)
    desk.publish(bob, 6, "b", v=100)
    desk.send(alice, Unsubscribe(9, wanted.id))
    assert gaps(desk, alice, wanted) == ["user_pattern_work_per_s"]
    check_state(desk)


def test_replay_does_not_depend_on_the_bounds_of_the_present_configuration(desk: Watched) -> None:
    desk.config = BrokerConfig(pattern_work_max=2_000, user_pattern_work_per_s=20_000)
    desk.restart()
    alice = desk.attach()
    wanted = subscribe(desk, alice, PAIRS, "pairs")
    for n in range(30):
        desk.publish(alice, n, "ab"[n % 2], v=n)
        desk.later(0.05)
    assert "pattern_work_max" in gaps(desk, alice, wanted)
    check_state(desk)
    desk.config = BrokerConfig()
    desk.restart()
    check_state(desk)


def test_a_stored_row_has_a_former_state_and_the_steps_since_so_that_a_save_takes_little_time(desk: Watched) -> None:
    alice = desk.attach()
    subscribe(desk, alice, "pattern pairs match A: a then B: b where (B.v > A.v) within 1 hour", "pairs")
    desk.save()
    written = saved = 0
    for n in range(300):
        desk.publish(alice, n, "aaab"[n % 4], v=n % 7)
        desk.later(0.01)
        (running,) = desk.broker.state.patterns._running.values()
        before = running.stored
        desk.save()
        saved += 1
        written += running.stored is not before
        if n % 50 == 7:
            check_state(desk)
    assert written < saved / 10
    desk.restart(with_rows=True)
    check_state(desk)
