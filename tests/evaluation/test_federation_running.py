"""Federations by every way on one workload: deliveries, messages and tables (SPEC M-02 to M-05, S-03)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from wanderbus.evaluation.federation.experiment import FederationJob, Topology, Way, delay_of, places_of
from wanderbus.evaluation.federation.network import senders_of
from wanderbus.evaluation.federation.plots import federation_plot
from wanderbus.evaluation.federation.running import FederationOutcome, run_one
from wanderbus.evaluation.federation.summary import goals, summarize
from wanderbus.evaluation.handover.experiment import PLANE_M

ROUND_TRIPS_MS = tuple(tuple(10.0 * abs(one - other) for other in range(10)) for one in range(10))
PLACES = tuple((PLANE_M * each / 9, 0.0) for each in range(10))


def outcome(way: Way, topology: Topology, domains: int, seed: int, **parameters: Any) -> FederationOutcome:
    (found,) = run_one(FederationJob(way, topology, domains, seed, **parameters))
    return found


@pytest.fixture(scope="module")
def of_ten() -> dict[Way, FederationOutcome]:
    return {way: outcome(way, Topology.RANDOM, 10, 1, moves=10) for way in Way}


def test_deliveries_by_every_way(of_ten: dict[Way, FederationOutcome]) -> None:
    assert all((each.events.lost, each.events.repeated) == (0, 0) for each in of_ten.values())
    wanted = {way: each.events.messages - each.events.useless for way, each in of_ten.items()}
    assert len(set(wanted.values())) == 1
    assert of_ten[Way.FLOODING].events.messages == 50 * 9
    assert of_ten[Way.MULTICAST].events.useless == of_ten[Way.RENDEZVOUS].events.useless == 0


def test_messages_of_moves_in_a_tree_and_with_a_rendezvous(of_ten: dict[Way, FederationOutcome]) -> None:
    updates = {way: each.move_updates for way, each in of_ten.items()}
    assert updates[Way.FLOODING] == 0 < updates[Way.RENDEZVOUS] < updates[Way.TREE] < updates[Way.MULTICAST]


def test_hops_of_events(of_ten: dict[Way, FederationOutcome]) -> None:
    assert [of_ten[each].events.hops_max for each in (Way.MULTICAST, Way.RENDEZVOUS, Way.FLOODING)] == [1, 1, 1]
    assert of_ten[Way.TREE].events.hops_max > 1


def test_tables_with_a_rendezvous(of_ten: dict[Way, FederationOutcome]) -> None:
    assert of_ten[Way.RENDEZVOUS].table_mean < of_ten[Way.MULTICAST].table_mean
    assert of_ten[Way.FLOODING].table_max == 0


@pytest.mark.parametrize("topology", [Topology.RING, Topology.LINE, Topology.CLUSTERS, Topology.GIVEN])
def test_trees_in_each_topology(topology: Topology) -> None:
    found = outcome(Way.TREE, topology, 10, 2, moves=2, cut_moves=4, links=2, places=PLACES)
    assert (found.events.lost, found.events.repeated) == (0, 0)
    assert found.events.messages > 0


def test_one_domain() -> None:
    found = outcome(Way.MULTICAST, Topology.RANDOM, 1, 1)
    assert (found.start_messages, found.heal_messages, found.events.messages, found.events.lost) == (0, 0, 0, 0)


def test_messages_after_a_cut(of_ten: dict[Way, FederationOutcome]) -> None:
    assert of_ten[Way.FLOODING].heal_messages == 0
    for way in (Way.MULTICAST, Way.RENDEZVOUS, Way.TREE):
        assert of_ten[way].heal_bytes > 0, way


@pytest.mark.parametrize("way", [Way.MULTICAST, Way.TREE])
def test_times_of_deliveries_with_given_round_trips(way: Way) -> None:
    """Neighbours on a line are 5 ms apart; whoever passes an event on takes no time."""
    parameters = {"moves": 0, "cut_moves": 0, "links": 9, "round_trips_ms": ROUND_TRIPS_MS, "users": 20, "events": 100}
    events = outcome(way, Topology.GIVEN, 10, 1, **parameters).events
    assert events.deliveries > 0
    assert 0.005 <= events.deliveries_s / events.deliveries <= events.delivery_s_max <= 0.045 + 1e-9
    assert events.ways_s >= 0.005 * events.messages - 1e-9


def test_delays_of_some_of_the_given_domains() -> None:
    job = FederationJob(Way.TREE, Topology.GIVEN, 3, 1, round_trips_ms=ROUND_TRIPS_MS)
    delay_s = delay_of(job, Random(1))
    assert delay_s(0, 0) == 0
    assert delay_s(0, 1) == delay_s(1, 0) in {0.005 * each for each in range(1, 10)}


def test_senders_of_types() -> None:
    assert senders_of("Departure", 2) == [0, 1]
    assert senders_of("Price", 30) == [1, 11, 21]


def test_places_of_a_ring() -> None:
    several = places_of(FederationJob(Way.TREE, Topology.RING, 4, 1), Random(1))
    assert several[0] == (PLANE_M, PLANE_M / 2)
    assert len(set(several)) == 4


def test_summary_and_plot(of_ten: dict[Way, FederationOutcome]) -> None:
    summaries = summarize([*of_ten.values()][::-1])
    assert [each.cell.way for each in summaries] == list(Way)
    assert all(goal.met for goal in goals(summaries))
    assert "updates of a move" in federation_plot(Topology.RANDOM, summaries)
    worse = [each for each in goals(summarize([of_ten[Way.FLOODING]])) if not each.met]
    assert worse == []
