"""Filters are merged for publishing agents within bounds, at the expense of who causes it (SPEC N-02, U-02)."""

from __future__ import annotations

from typing import Any

from tests.broker.desk import ALICE, BOB, Desk
from tests.broker.test_publisher_filters import publisher, requested, subscribe, wants
from tests.channels.interest.test_bounded_merging import costly
from wanderbus.limits import MERGE_WORK_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import ConfirmFilters, Filters, ReleaseFilters, RequestFilters
from wanderbus.refusals import Limited

SUBJECT = "Trade"


class Limiting(Desk):
    """A broker whose reports of limits are kept."""

    def __init__(self, **more: Any) -> None:
        self.limited: list[Limited] = []
        super().__init__(BrokerConfig(sweep_s=None, **more))

    def perform(self, outputs: Any) -> None:
        super().perform(outputs)
        self.limited += [each for each in outputs if isinstance(each, Limited)]


def merging(desk: Desk) -> int:
    return desk.broker._journal.merging


def test_a_costly_filter_lets_every_event_be_published_and_its_user_waits() -> None:
    desk = Limiting()
    alice, bob = desk.attach(), publisher(desk, BOB)
    assert requested(desk, bob, subject=SUBJECT).expressions == ()
    before = merging(desk)
    for number in range(12):
        done = merging(desk)
        subscribe(desk, alice, number + 1, costly(number, 60), subject=SUBJECT)
        assert merging(desk) - done < 1.2 * MERGE_WORK_MAX
        if pushed := [each for each in desk.received(bob, Filters) if each.number == 0]:
            desk.send(bob, ConfirmFilters(SUBJECT, pushed[-1].version))
    assert merging(desk) > before
    assert pushed[-1].expressions is None
    assert ("limits.MERGE_WORK_MAX", ALICE) in {(each.limit, each.party) for each in desk.limited}


def test_an_agent_that_asks_for_merged_filters_again_and_again_gets_none_for_now() -> None:
    desk = Limiting()
    alice = desk.attach()
    for number in range(100):
        subscribe(desk, alice, number + 1, f"N >= {10 * number} and N < {10 * number + 5}", subject=SUBJECT)
    desk.later(30.0)
    bob = publisher(desk, BOB)
    began = merging(desk)
    answers = []
    for number in range(1, 41):
        desk.send(bob, RequestFilters(number, SUBJECT))
        answers.append(desk.received(bob, Filters)[-1])
        desk.send(bob, ConfirmFilters(SUBJECT, answers[-1].version), ReleaseFilters(0, 0))
    assert wants(answers[0], 3)
    assert not wants(answers[0], 7)
    assert answers[-1].expressions is None
    assert merging(desk) - began < 2_000_000
    assert {(each.limit, each.party) for each in desk.limited} == {("limits.USER_MERGE_WORK_PER_S_MAX", BOB)}
    desk.later(60.0)
    assert not wants(requested(desk, bob, 50, SUBJECT), 7)


def test_the_work_of_merging_counts_for_the_pace_of_the_subscriber() -> None:
    waited = []
    for is_filtered in (False, True):
        desk = Limiting(user_filter_characters_per_s=6_000.0)
        alice, bob = desk.attach(), publisher(desk, BOB)
        if is_filtered:
            requested(desk, bob, subject=SUBJECT)
        for number in range(100):
            subscribe(desk, alice, number + 1, f"N >= {10 * number} and N < {10 * number + 5}", subject=SUBJECT)
        waited.append("broker.user_filter_characters_per_s" in {each.limit for each in desk.limited})
    assert waited == [False, True]
