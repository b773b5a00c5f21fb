"""The arithmetic of ``./do hostile``: each broken promise to good agents is seen, and counted once."""

from __future__ import annotations

import math

import pytest

from hostile.__main__ import goals
from hostile.attack import Attack, Report, Target
from hostile.network import octets_in
from hostile.scene import Seen, figures
from hostile.tally import (
    ATTACK,
    BASELINE,
    Arrival,
    Figures,
    Newcomer,
    Observed,
    Phase,
    delivery,
    longest_stall_s,
    merged,
    p99_ratio,
    slowest_newcomer_s,
)

NAMES = ("alice", "bob", "carol")
EVENTS = 100
INTERVAL_S = 0.1


def observed() -> Observed:
    """Ten seconds without and ten under attack; three agents publish 10/s each, and all arrives 5 ms later."""
    found = Observed(called=dict.fromkeys(NAMES, 2 * EVENTS))
    found.phases = [Phase(BASELINE, 0.0, 10.0), Phase(ATTACK, 10.0, 20.0)]
    found.newcomers = [Newcomer(1.0, 0.1), Newcomer(11.0, 0.2)]
    for number in range(2 * EVENTS):
        at_s = number * INTERVAL_S
        found.arrivals += [
            Arrival(publisher, consumer, number + 1, at_s, at_s + 0.005)
            for publisher in NAMES
            for consumer in NAMES
            if publisher != consumer
        ]
    return found


def later(each: Arrival, by_s: float) -> Arrival:
    return Arrival(each.publisher, each.consumer, each.number, each.published_s, each.arrived_s + by_s)


async def load(target: Target) -> Report:
    return {}


def unmet(found: Observed, seen: Seen | None = None, attack: Attack | None = None) -> list[str]:
    attack = attack or Attack("sample", "own", "does nothing", load)
    judged = goals(attack, figures(attack, found, seen or Seen(rss_mib=[100.0, 110.0])))
    return [str(each["name"]) for each in judged if each["met"] is not True]


def test_nothing_broken_meets_every_goal() -> None:
    assert unmet(observed()) == []


def test_an_event_that_one_consumer_lacks_is_lost() -> None:
    found = observed()
    del found.arrivals[7]
    assert delivery(found).lost == 1
    assert unmet(found) == ["sample:good_lost"]


def test_unacknowledged_publishes_count_as_lost() -> None:
    found = observed()
    found.called["alice"] += 1
    assert delivery(found).lost == len(NAMES) - 1


def test_an_event_that_comes_twice_is_repeated() -> None:
    found = observed()
    found.arrivals.append(found.arrivals[-1])
    assert (delivery(found).lost, delivery(found).repeated, delivery(found).out_of_order) == (0, 1, 0)
    assert unmet(found) == ["sample:good_repeated"]


def test_two_events_of_a_publisher_that_change_places_are_out_of_order() -> None:
    found = observed()
    mine = [place for place, each in enumerate(found.arrivals) if (each.publisher, each.consumer) == ("alice", "bob")]
    early, late = mine[4:6]
    found.arrivals[early], found.arrivals[late] = found.arrivals[late], found.arrivals[early]
    assert (delivery(found).lost, delivery(found).repeated, delivery(found).out_of_order) == (0, 0, 1)
    assert unmet(found) == ["sample:good_out_of_order"]


def test_one_agent_who_receives_nothing_for_a_while_is_a_stall() -> None:
    found = observed()
    found.arrivals = [
        later(each, 14.0 - each.arrived_s) if each.consumer == "bob" and 12.0 <= each.arrived_s < 14.0 else each
        for each in found.arrivals
    ]
    assert longest_stall_s(found, ATTACK, INTERVAL_S) == pytest.approx(1.995 + INTERVAL_S - INTERVAL_S, abs=0.1)
    assert "sample:longest_stall_s" in unmet(found)
    assert longest_stall_s(found, BASELINE, INTERVAL_S) == pytest.approx(0.0, abs=0.01)


def test_nothing_at_all_to_the_end_of_the_attack_is_a_stall_as_long() -> None:
    found = observed()
    found.arrivals = [each for each in found.arrivals if each.arrived_s < 15.0]
    assert longest_stall_s(found, ATTACK, INTERVAL_S) == pytest.approx(5.0, abs=0.2)


def test_slower_deliveries_under_attack_raise_the_ratio() -> None:
    found = observed()
    found.arrivals = [later(each, 0.003) if each.published_s >= 10.0 else each for each in found.arrivals]
    before_ms, under_ms, ratio = p99_ratio(found, without="")
    assert (before_ms, under_ms, ratio) == pytest.approx((5.0, 8.0, 1.6))
    assert unmet(found) == ["sample:good_p99_ratio"]


def test_the_moving_agent_is_not_part_of_the_ratio() -> None:
    found = observed()
    found.arrivals = [
        later(each, 0.5) if "carol" in (each.publisher, each.consumer) and each.published_s > 10 else each
        for each in found.arrivals
    ]
    assert p99_ratio(found, without="carol")[2] == pytest.approx(1.0)
    assert p99_ratio(found, without="")[2] > 50


def test_nothing_that_arrives_under_attack_is_no_good_ratio() -> None:
    found = observed()
    found.arrivals = [each for each in found.arrivals if each.published_s < 10.0]
    assert p99_ratio(found, without="")[2] == math.inf
    assert "sample:good_p99_ratio" in unmet(found)


def test_the_slowest_newcomer_of_the_attack_counts() -> None:
    found = observed()
    found.newcomers += [Newcomer(12.0, 2.5), Newcomer(13.0, 0.1)]
    assert slowest_newcomer_s(found, ATTACK) == 2.5
    assert unmet(found) == ["sample:newcomer_s"]


def test_no_newcomer_at_all_is_not_met() -> None:
    found = observed()
    found.newcomers = []
    assert unmet(found) == ["sample:newcomer_s"]


def test_memory_ends_and_restarts_of_the_server_are_held_to_their_goals() -> None:
    assert unmet(observed(), Seen(rss_mib=[100.0, 165.0, 120.0])) == ["sample:rss_growth_mib"]
    assert unmet(observed(), Seen(rss_mib=[1.0], ended=1)) == ["sample:server_ended"]
    attack = Attack("sample", "own", "", load, restarts=True)
    assert unmet(observed(), Seen(rss_mib=[1.0], ready_s=5.1), attack) == ["sample:ready_after_costly_user_s"]
    assert unmet(observed(), Seen(rss_mib=[1.0], ready_s=4.9), attack) == []


def test_bytes_at_the_victim_are_held_to_those_that_were_sent() -> None:
    attack = Attack("sample", "own", "", load, amplification=True)

    def seen(victim_bytes: float) -> Seen:
        return Seen(rss_mib=[1.0], victim_bytes=victim_bytes, report={"sent_bytes": 1_000})

    assert unmet(observed(), seen(1_001), attack) == ["sample:amplification"]
    assert unmet(observed(), seen(999), attack) == []


def test_guesses_are_counted_where_an_attack_guesses() -> None:
    attack = Attack("sample", "own", "", load, guesses_max=65)
    seen = Seen(rss_mib=[1.0], report={"guesses_admitted": 66})
    assert unmet(observed(), seen, attack) == ["sample:guesses_admitted"]


def test_an_attack_that_could_not_be_measured_meets_nothing() -> None:
    judged = goals(Attack("sample", "own", "", load), Figures())
    assert [each["met"] for each in judged] == [None] * 8


def test_repetitions_give_the_median_ratio_and_the_worst_of_all_else() -> None:
    runs = [Figures(good_lost=lost, good_p99_ratio=ratio) for lost, ratio in ((0, 3.0), (2, 1.0), (0, 1.2))]
    both = merged(runs)
    assert (both.good_lost, both.good_p99_ratio) == (2, 1.2)
    assert math.isnan(both.amplification)


def test_bytes_that_arrived_are_read_from_the_kernel() -> None:
    text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 1234 5\n"
    assert octets_in(text) == 1234
