"""Points of grids as text, and the comparison of their outcomes (SPEC T-09)."""

from __future__ import annotations

import msgspec
import pytest

from wanderbus.evaluation import simulated
from wanderbus.evaluation.federation.experiment import FederationJob, Topology, Way
from wanderbus.evaluation.grid import Cell, Experiment, Outage
from wanderbus.evaluation.handover.experiment import HandoverJob, Movement, Routing
from wanderbus.evaluation.merging import measuring
from wanderbus.evaluation.merging.mixes import REFERENCE
from wanderbus.evaluation.points import HANDOVER, KINDS, MERGING, MOBILITY, differing_figures, run_point

MOBILITY_JOB: simulated.Job = (Cell(100, 20), Experiment(Outage.RANDOM, rate_per_s=15.0, events=300), 3)
MERGING_JOB = measuring.Job(REFERENCE, 2, 5, (10, 20), 0.9, events=80)
HANDOVER_JOB = HandoverJob(Routing.RENDEZVOUS, Movement.WAYPOINT, 5, 25, 25, 2, users=3, moves=4, group_moves=2)
FEDERATION_JOB = FederationJob(Way.RENDEZVOUS, Topology.RANDOM, 4, 2, moves=2, cut_moves=2)
JOBS = {"mobility": MOBILITY_JOB, "merging": MERGING_JOB, "handover": HANDOVER_JOB, "federation": FEDERATION_JOB}


@pytest.mark.parametrize("name", KINDS)
def test_a_point_equals_a_direct_run(name: str) -> None:
    kind, job = KINDS[name], JOBS[name]
    texts = run_point(name, kind.encode(job))
    direct = list(kind.run(job))
    assert [kind.timed(each) for each in kind.parts_of(texts)] == [kind.timed(each) for each in direct]
    assert kind.decode(kind.encode(job)) == job
    assert len(texts) == (8 if name == "merging" else 1), "two numbers of subscriptions, four methods"


def test_rows_have_parameters_seed_and_figures() -> None:
    point = MOBILITY.encode(MOBILITY_JOB)
    [row] = MOBILITY.rows(point, run_point("mobility", point))
    parameters = {"buffer": 100, "period_s": 20, "outage": "random", "rate_per_s": 15.0, "events": 300, "seed": 3}
    assert parameters.items() <= row.items()
    assert row["published"] == row["received"] + row["dropped"]  # type: ignore[operator]
    rows = list(MERGING.rows(MERGING.encode(MERGING_JOB), run_point("merging", MERGING.encode(MERGING_JOB))))
    assert [(row["subscriptions"], row["method"], row["seed"]) for row in rows[3:5]] == [
        (10, "adaptive", 5),
        (20, "unmerged", 5),
    ]


@pytest.mark.parametrize("name", KINDS)
def test_each_figure_that_differs_is_counted_and_no_measured_time(name: str) -> None:
    kind = KINDS[name]
    texts = run_point(name, kind.encode(JOBS[name]))
    assert differing_figures(kind, texts, texts) == 0
    [*_, last] = kind.parts_of(texts)
    if name == "mobility":
        changed = msgspec.structs.replace(last, dropped=last.dropped + 1, measured=last.measured[1:])
        assert differing_figures(kind, texts, [msgspec.json.encode(changed).decode()]) > 2
    elif name == "federation":
        changed = msgspec.structs.replace(last, events=msgspec.structs.replace(last.events, lost=last.events.lost + 1))
        assert differing_figures(kind, texts, [msgspec.json.encode(changed).decode()]) == 1
    elif name == "handover":
        changed = msgspec.structs.replace(last, updates=last.updates + 1, handovers=last.handovers[1:])
        assert differing_figures(kind, texts, [msgspec.json.encode(changed).decode()]) > 2
    else:
        slower = msgspec.structs.replace(last, merge_ms=last.merge_ms + 1, match_us=last.match_us + 1)
        assert differing_figures(kind, texts, [*texts[:-1], msgspec.json.encode(slower).decode()]) == 0
        more = msgspec.structs.replace(last, filters=last.filters + 1)
        assert differing_figures(kind, texts, [*texts[:-1], msgspec.json.encode(more).decode()]) == 1
    assert differing_figures(kind, texts, texts[:-1]) > 5, "a missing part has many figures"


def test_a_row_of_handovers_has_its_routing_and_its_messages() -> None:
    point = HANDOVER.encode(HANDOVER_JOB)
    [row] = HANDOVER.rows(point, run_point("handover", point))
    parameters = {"routing": "rendezvous", "movement": "waypoint", "servers": 5, "source_percent": 25, "seed": 2}
    assert parameters.items() <= row.items()
    assert (row["moves"], row["control"]) == (4, 4 * (2 * 4 + 4))


def test_a_point_is_shown_with_its_parameters_and_seed() -> None:
    shown = MOBILITY.shown(MOBILITY.encode(MOBILITY_JOB))
    assert shown == "buffer=100 period_s=20 outage=random outage_s=9.9 rate_per_s=15.0 events=300 seed=3"
