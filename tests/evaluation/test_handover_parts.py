"""Parts of the comparison of handovers: walks, the tree of brokers, the population, and the counted cases."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import msgspec
import pytest

from wanderbus.evaluation.handover.counted_cases import counted_cases
from wanderbus.evaluation.handover.experiment import PLANE_M, HandoverJob, Movement, Routing, TracePoint
from wanderbus.evaluation.handover.movement import Place, Walk, nearest, server_places, walks
from wanderbus.evaluation.handover.population import Population, filter_of
from wanderbus.evaluation.handover.running import run_one
from wanderbus.evaluation.handover.summary import goals, summarize
from wanderbus.evaluation.handover.tree import spanning_tree
from wanderbus.filters import covers, normal_form

JOB = HandoverJob(Routing.RENDEZVOUS, Movement.WAYPOINT, 12, 25, 75, 3)


def test_l03_the_model_counts_what_real_servers_send() -> None:
    cases = list(counted_cases())
    assert [each.servers.updates for each in cases] == [0, 1, 1, 2]
    assert {each.servers.control for each in cases} == {2 * 2 + 4}
    assert [each.model for each in cases] == [each.servers for each in cases]
    assert [each.name for each in cases] == [
        *("covered_needed", "covered_unneeded", "uncovered_needed", "uncovered_unneeded")
    ]


@pytest.mark.parametrize("movement", [Movement.WAYPOINT, Movement.GAUSS_MARKOV])
def test_a_walk_leads_from_cell_to_cell(movement: Movement) -> None:
    job = msgspec.structs.replace(JOB, movement=movement, moves=40)
    first, moves = walks(job, server_places(12, Random(1)), Random(2))
    assert len(moves) == 40
    assert [each.at_s for each in moves] == sorted(each.at_s for each in moves)
    cells = dict(enumerate(first))
    for each in moves:
        assert each.server != cells[each.user]
        cells[each.user] = each.server
    assert len({each.user for each in moves}) > 4


def test_users_move_once_between_the_two_saturations() -> None:
    first, moves = walks(msgspec.structs.replace(JOB, movement=Movement.ONCE), server_places(12, Random(1)), Random(2))
    assert {each % 2 for each in first} == {0}
    assert [each.user for each in moves] == list(range(8))
    assert {each.server % 2 for each in moves} == {1}


def test_a_trace_is_followed_from_cell_to_cell() -> None:
    servers: list[Place] = [(1_000.0, 5_000.0), (9_000.0, 5_000.0)]
    places = [(0.0, 0, 100.0), (1.0, 0, 4_900.0), (2.5, 0, 5_100.0), (0.5, 1, 8_000.0), (9.0, 0, 0.0)]
    trace = tuple(TracePoint(at_s, user, x, 5_000.0) for at_s, user, x in places)
    job = msgspec.structs.replace(JOB, movement=Movement.TRACE, users=2, trace=trace)
    assert walks(job, servers, Random(1)) == ([0, 1], [Walk(2.5, 0, 1), Walk(9.0, 0, 0)])
    assert nearest((PLANE_M, 0.0), servers) == 1


def test_the_tree_of_brokers_has_the_least_length() -> None:
    for seed in range(5):
        places = server_places(5, Random(seed))
        pairs = list(combinations(range(5), 2))
        neighbours = spanning_tree(places)
        tree = [(one, other) for one, others in enumerate(neighbours) for other in others if one < other]
        assert len(tree) == 4

        def length(edges: tuple[tuple[int, int], ...] | list[tuple[int, int]], at: list[Place] = places) -> float:
            return sum(math.dist(at[one], at[other]) for one, other in edges)

        assert math.isclose(length(tree), min(length(each) for each in combinations(pairs, 4) if is_tree(each)))


def is_tree(edges: tuple[tuple[int, int], ...]) -> bool:
    reached = {0}
    for _ in edges:
        for one, other in edges:
            if one in reached or other in reached:
                reached |= {one, other}
    return len(reached) == 5


def test_residents_cover_exactly_the_given_share_of_each_users_filters() -> None:
    population = Population(JOB)
    assert len({each.expression for user in population.users for each in user}) == 8 * 4
    wider = 0
    for server, share in ((0, 1), (1, 3)):
        forms = [
            (subject, normal_form(filter_of(expression).root))
            for subject, expression in population.residents(server).values()
        ]
        for user in population.users:
            covered = 0
            for wanted in user:
                own = normal_form(filter_of(wanted.expression).root)
                found = [each for subject, each in forms if subject == wanted.subject and covers(each, own)]
                covered += bool(found)
                wider += sum(not covers(own, each) for each in found)
            assert covered == share
    assert wider > 3, "some residents want more than the user"


def test_events_are_drawn_for_the_subscriptions() -> None:
    population = Population(JOB)
    events = [population.event() for _ in range(300)]
    wanted = sum(
        any(event.matches(each.subject, each.expression) for user in population.users for each in user)
        for event in events
    )
    assert 100 < wanted < 280


def test_goals_notice_updates_and_wrong_deliveries() -> None:
    jobs = [HandoverJob(Routing.RENDEZVOUS, Movement.ONCE, 4, percent, percent, 1, users=2) for percent in (0, 100)]
    found, cases = [each for job in jobs for each in run_one(job)], list(counted_cases())
    assert all(each.met for each in goals(summarize(found), cases))
    less, more = found
    worse = [less, msgspec.structs.replace(more, updates=less.updates, lost=1, repeated=2, out_of_order=3)]
    failed = {each.name: each.value for each in goals(summarize(worse), cases) if not each.met}
    assert failed == {
        "updates_at_full_saturation": less.updates / more.moves,
        "saturations_without_fewer_updates": 1,
        **{"lost": 1, "repeated": 2, "out_of_order": 3},
    }
    [first, *rest] = cases
    differing = [msgspec.structs.replace(first, servers=msgspec.structs.replace(first.servers, updates=1)), *rest]
    failed = {each.name: each.value for each in goals(summarize(found), differing) if not each.met}
    assert failed == {"channel_updates_2x2_covered_needed": 1, "cases_in_which_the_model_differs": 1}
