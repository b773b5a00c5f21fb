"""Handovers by every routing on one workload: deliveries and messages (SPEC R-07, S-07; EVALUATIONS E6)."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest

from wanderbus.evaluation.handover import running
from wanderbus.evaluation.handover.experiment import HandoverJob, Movement, Routing, TracePoint
from wanderbus.evaluation.handover.fabric import Fabric
from wanderbus.evaluation.handover.running import HandoverOutcome, HandoverRun, run_one

BOTH_WAYS = tuple(
    TracePoint(3.0 * turn, user, 10_000.0 * (turn % 2), 5_000.0) for turn in range(6) for user in range(2)
)
"""Two users who cross the plane again and again."""


def outcome(job: HandoverJob) -> HandoverOutcome:
    [found] = run_one(job)
    return found


def once(routing: Routing, source: int, target: int, seed: int = 1) -> HandoverOutcome:
    return outcome(HandoverJob(routing, Movement.ONCE, 10, source, target, seed))


def wrong(found: HandoverOutcome) -> tuple[int, int, int]:
    return found.lost, found.repeated, found.out_of_order


@pytest.mark.parametrize("seed", [1, 2])
def test_r07_covering_saves_updates_as_subscriptions_saturate(seed: int) -> None:
    covered = [once(Routing.RENDEZVOUS, each, each, seed).updates for each in (0, 25, 50, 75, 100)]
    assert all(later < earlier for earlier, later in pairwise(covered))
    assert covered[-1] == 0
    assert {once(Routing.UNCOVERED, each, each, seed).updates for each in (0, 50, 100)} == {covered[0]}


def test_r07_source_and_target_each_save_their_half() -> None:
    none = once(Routing.RENDEZVOUS, 0, 0).updates
    at_source, at_target = once(Routing.RENDEZVOUS, 100, 0).updates, once(Routing.RENDEZVOUS, 0, 100).updates
    assert 0 < at_source < none
    assert at_source + at_target == none


@pytest.mark.parametrize("routing", Routing)
@pytest.mark.parametrize("movement", [Movement.WAYPOINT, Movement.GAUSS_MARKOV])
def test_s07_every_routing_delivers_each_event_once_and_in_order(routing: Routing, movement: Movement) -> None:
    for seed in (1, 2):
        job = HandoverJob(routing, movement, 7, 50, 50, seed, moves=12, events_per_move=40, group_moves=6)
        found = outcome(job)
        assert wrong(found) == (0, 0, 0), seed
        assert found.moves >= 10
        assert found.deliveries > 200
        assert len(found.group_moves) == 0 or routing.has_leaders


def test_all_routings_have_the_same_walks_and_events() -> None:
    jobs = [HandoverJob(each, Movement.WAYPOINT, 7, 25, 25, 4) for each in Routing]
    found = {(each.walks, each.events, each.deliveries) for each in map(outcome, jobs)}
    assert len(found) == 1


def test_a_handover_costs_two_messages_for_each_other_server_or_two_for_each_hop() -> None:
    ours, tree, flooding = (once(each, 100, 100) for each in (Routing.RENDEZVOUS, Routing.TREE, Routing.FLOODING))
    assert (ours.moves, ours.control) == (8, 8 * (2 * 9 + 4))
    assert tree.updates == flooding.updates == flooding.answers == 0
    assert tree.control == flooding.control
    assert tree.control % 2 == 0
    assert flooding.event_messages == 9 * flooding.events
    assert tree.event_messages < flooding.event_messages


def test_a_tree_is_told_what_moves_unless_others_have_it() -> None:
    updates = [once(Routing.TREE, each, each).updates for each in (0, 50, 100)]
    assert updates[0] > updates[1] > updates[2] == 0


def test_one_server_has_events_and_no_handover() -> None:
    found = outcome(HandoverJob(Routing.RENDEZVOUS, Movement.WAYPOINT, 1, 50, 50, 1, group_moves=2))
    assert (found.moves, found.updates, found.control, found.event_messages) == (0, 0, 0, 0)
    assert found.deliveries > 0
    assert wrong(found) == (0, 0, 0)


class UnevenFabric(Fabric):
    """A network in which some ways are so slow that a detour is faster."""

    def delay_s(self, source: int, target: int) -> float:
        return super().delay_s(source, target) + Random(f"{source}/{target}").choice([0.0, 0.0, 0.1, 0.4])


@pytest.mark.parametrize("routing", Routing)
def test_s07_events_are_delivered_once_however_uneven_the_delays_are(
    monkeypatch: pytest.MonkeyPatch, routing: Routing
) -> None:
    monkeypatch.setattr(running, "Fabric", UnevenFabric)
    for seed in (4, 6, 12):
        job = HandoverJob(routing, Movement.WAYPOINT, 5, 25, 25, seed, moves=12, events_per_move=60, group_moves=12)
        assert wrong(outcome(job)) == (0, 0, 0), seed


@pytest.mark.parametrize("routing", Routing)
def test_a_user_who_turns_back_during_a_handover_is_served(routing: Routing) -> None:
    """The users of the trace cross in hundredths of a second, so that walks come during handovers."""
    hurried = tuple(msgspec.structs.replace(each, at_s=each.at_s / 100) for each in BOTH_WAYS)
    for seed in range(1, 6):
        job = HandoverJob(routing, Movement.TRACE, 8, 0, 0, seed, users=2, events_per_move=40, moves=100, trace=hurried)
        found = outcome(job)
        assert wrong(found) == (0, 0, 0)
        assert found.walks == 10
        assert 2 <= found.moves < 10, "some walks came before the session"
        assert len(found.handovers) < found.walks


def test_wrong_deliveries_are_counted() -> None:
    run = HandoverRun(HandoverJob(Routing.RENDEZVOUS, Movement.ONCE, 4, 0, 0, 1, events_per_move=40))
    assert wrong(run.run()) == (0, 0, 0)
    delivered = next(each.delivered for each in run.sessions if len(each.delivered) > 3)
    delivered.append(delivered[-1])
    assert wrong(run.outcome()) == (0, 1, 0)
    del delivered[-2:]
    assert wrong(run.outcome()) == (1, 0, 0)
    same = [each for each in delivered if each.origin == delivered[0].origin]
    delivered.remove(same[-1])
    delivered.insert(0, same[-1])
    assert wrong(run.outcome())[2] == 2, "in the order of the leader, and of the channel"
