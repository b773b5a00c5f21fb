"""Placements near a present one (SPEC T-10)."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from wanderbus.planning import place
from wanderbus.planning.placing import SLACK

SERVERS = 5
NINE = [f"s{n}" for n in range(9)]

loads_and_present = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, SERVERS + 1)), max_size=60).map(
    lambda rows: (
        {f"s{n}": load for n, (load, _) in enumerate(rows)},
        {f"s{n}": server for n, (_, server) in enumerate(rows) if server <= SERVERS},
    )
)


def moved(server_of: dict[str, int], present: dict[str, int]) -> set[str]:
    return {subject for subject, server in server_of.items() if present.get(subject, server) != server}


@given(loads_and_present)
def test_the_largest_load_is_within_the_slack_of_a_new_placement(
    given_loads: tuple[dict[str, int], dict[str, int]],
) -> None:
    loads, present = given_loads
    fresh, found = place(loads, SERVERS), place(loads, SERVERS, present)
    assert found.max_load <= fresh.max_load * (1 + SLACK)
    assert found.server_of.keys() == loads.keys()


@given(loads_and_present)
def test_a_plan_that_is_applied_moves_nothing_any_more(given_loads: tuple[dict[str, int], dict[str, int]]) -> None:
    loads, present = given_loads
    first = place(loads, SERVERS, present)
    assert place(loads, SERVERS, first.server_of) == first


@example(
    (
        dict(zip(NINE, (1, 71, 71, 110, 665, 704, 704, 775, 775), strict=True)),
        dict(zip(NINE, (0, 1, 1, 0, 4, 1, 1, 1, 1), strict=True)),
    )
)
@given(loads_and_present)
def test_no_more_load_moves_than_with_a_new_placement_as_it_is(
    given_loads: tuple[dict[str, int], dict[str, int]],
) -> None:
    loads, present = given_loads
    fresh, found = place(loads, SERVERS), place(loads, SERVERS, present)
    assert sum(loads[each] for each in moved(found.server_of, present)) <= sum(
        loads[each] for each in moved(fresh.server_of, present)
    )


def test_a_server_more_gets_load_and_nothing_else_moves() -> None:
    loads = {f"s{n:02}": 100 for n in range(40)}
    present = place(loads, 4).server_of
    found = place(loads, 5, present)
    changed = moved(found.server_of, present)
    assert found.max_load == 800
    assert len(changed) == 8
    assert {found.server_of[each] for each in changed} == {4}


def test_subjects_of_a_server_that_is_gone_move_and_no_others() -> None:
    loads = {f"s{n:02}": 100 for n in range(40)}
    present = place(loads, 5).server_of
    found = place(loads, 4, present)
    assert moved(found.server_of, present) == {subject for subject, server in present.items() if server == 4}
    assert found.max_load == 1_000


def test_single_moves_that_do_not_suffice_give_a_new_placement() -> None:
    """Neither of two servers can take a subject of the other, but four exchanged subjects balance them."""
    loads = {"a": 60, "b": 50, "c": 40, "d": 30}
    present = {"a": 0, "b": 0, "c": 1, "d": 1}
    found = place(loads, 2, present, slack=0.0)
    assert found.loads == [90, 90]
    assert len(moved(found.server_of, present)) == 2
