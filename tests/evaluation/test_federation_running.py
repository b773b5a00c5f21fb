"""Federations by every way on one workload: deliveries, messages and tables (SPEC M-02 to M-05, S-03)."""

from __future__ import annotations

from random import Random

import pytest

from wanderbus.evaluation.federation.experiment import FederationJob, Topology, Way, places_of
from wanderbus.evaluation.federation.network import senders_of
from wanderbus.evaluation.federation.plots import federation_plot
from wanderbus.evaluation.federation.running import FederationOutcome, run_job
from wanderbus.evaluation.federation.summary import goals, summarize
from wanderbus.evaluation.handover.experiment import PLANE_M

PLACES = tuple((PLANE_M * each / 9, 0.0) for each in range(10))


@pytest.fixture(scope="module")
def of_ten() -> dict[Way, FederationOutcome]:
    return {way: run_job(FederationJob(way, Topology.RANDOM, 10, 1, moves=10)) for way in Way}


def test_deliveries_by_every_way(of_ten: dict[Way, FederationOutcome]) -> None:
    assert all((each.lost, each.repeated) == (0, 0) for each in of_ten.values())
    wanted = {way: each.event_messages - each.useless for way, each in of_ten.items()}
    assert len(set(wanted.values())) == 1
    assert of_ten[Way.FLOODING].event_messages == 50 * 9
    assert of_ten[Way.MULTICAST].useless == of_ten[Way.RENDEZVOUS].useless == 0


def test_messages_of_moves_in_a_tree_and_with_a_rendezvous(of_ten: dict[Way, FederationOutcome]) -> None:
    updates = {way: each.move_updates for way, each in of_ten.items()}
    assert updates[Way.FLOODING] == 0 < updates[Way.RENDEZVOUS] < updates[Way.TREE] < updates[Way.MULTICAST]


def test_hops_of_events(of_ten: dict[Way, FederationOutcome]) -> None:
    assert [of_ten[each].hops_max for each in (Way.MULTICAST, Way.RENDEZVOUS, Way.FLOODING)] == [1, 1, 1]
    assert of_ten[Way.TREE].hops_max > 1


def test_tables_with_a_rendezvous(of_ten: dict[Way, FederationOutcome]) -> None:
    assert of_ten[Way.RENDEZVOUS].table_mean < of_ten[Way.MULTICAST].table_mean
    assert of_ten[Way.FLOODING].table_max == 0


@pytest.mark.parametrize("topology", [Topology.RING, Topology.LINE, Topology.CLUSTERS, Topology.GIVEN])
def test_trees_in_each_topology(topology: Topology) -> None:
    found = run_job(FederationJob(Way.TREE, topology, 10, 2, moves=2, links=2, places=PLACES))
    assert (found.lost, found.repeated) == (0, 0)
    assert found.event_messages > 0


def test_one_domain() -> None:
    found = run_job(FederationJob(Way.MULTICAST, Topology.RANDOM, 1, 1))
    assert (found.start_messages, found.event_messages, found.lost) == (0, 0, 0)


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
