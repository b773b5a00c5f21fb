"""The interest at a leader changes in turns of bounded work, whatever filters subscribers choose (SPEC B-10, U-02)."""

from __future__ import annotations

import math

import pytest

from tests.access.town import Town
from tests.broker.desk import SUBJECT
from tests.channels.interest.test_bounded_merging import costly
from tests.peers.test_leader_sessions import South
from wanderbus.broker.messages import DecentralisedInterestChanged, OrderedInterestChanged
from wanderbus.broker.servers.leader_messages import InterestMerged
from wanderbus.channels.interest import covering_set, interest_set
from wanderbus.filters import parse
from wanderbus.limits import MERGE_WORK_MAX
from wanderbus.machine import SetTimer, TimerFired
from wanderbus.peers.interest_charges import UNCHARGED
from wanderbus.work import WorkBudget


def test_costly_filters_of_a_subscriber_are_bounded_work_at_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[WorkBudget] = []

    def budget(most: float = math.inf) -> WorkBudget:
        budgets.append(WorkBudget(most))
        return budgets[-1]

    monkeypatch.setattr(interest_set, "WorkBudget", budget)
    south = South()
    south.sessions.start()
    for number in range(6):
        south.give(OrderedInterestChanged({f"s{number}": (("North", parse(costly(number, 60))),)}))
    assert len(budgets) >= 6
    assert max(each.done for each in budgets) < 1.2 * MERGE_WORK_MAX


def test_filters_that_a_broad_one_covered_come_back_with_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering_set, "ORPHANS_MAX", 3)
    south = South()
    south.sessions.start()
    given = {"all": (("North", parse("")),)} | {
        f"s{n}": (("North", parse(f"A == {n} and B{n} == 1")),) for n in range(200)
    }
    south.give(OrderedInterestChanged(given))
    interest = south.sessions._sessions["north"].interest
    assert interest.wanted() == [("North", "everything")]
    timers = [each for each in south.give(OrderedInterestChanged({}, ("all",))) if isinstance(each, SetTimer)]
    turns = 0
    while timers:
        assert ("North", "everything") in interest.wanted()
        (timer,) = timers
        south.now = timer.at
        timers = [each for each in south.give(TimerFired(timer.key)) if isinstance(each, SetTimer)]
        turns += 1
    assert turns > 1
    assert len(interest.wanted()) == 200
    assert ("North", "everything") not in interest.wanted()


def test_the_work_of_merging_a_subscription_of_a_decentralised_channel_is_charged() -> None:
    post = Town()["s1"]
    given = DecentralisedInterestChanged({"costly 1": ((SUBJECT, parse(costly(1, 60))),)})
    (charge,) = [each for each in post.interest.step([given], post.now) if isinstance(each, InterestMerged)]
    assert charge.name == "costly 1"
    assert charge.units > UNCHARGED
    cheap = DecentralisedInterestChanged({"cheap 2": ((SUBJECT, parse("Z == 1")),)})
    assert not [each for each in post.interest.step([cheap], post.now) if isinstance(each, InterestMerged)]
