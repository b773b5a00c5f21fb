"""Moves between the servers of a running domain (SPEC J-08)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from wanderbus.planning.rebalancing import ItemMove, PlacedItem, moves_between, ratio

SERVERS = ("s1", "s2", "s3")


def items(**loads: Iterable[int]) -> list[PlacedItem]:
    return [PlacedItem(f"{server}.{n}", server, load) for server, of in loads.items() for n, load in enumerate(of)]


def loads_after(
    given_items: Iterable[PlacedItem], moves: Iterable[ItemMove], fixed: Mapping[str, int]
) -> dict[str, int]:
    target = {move.name: move.target for move in moves}
    loads = {server: fixed.get(server, 0) for server in SERVERS}
    for item in given_items:
        loads[target.get(item.name, item.server)] += item.load_us
    return loads


def test_few_items_move_from_the_most_loaded_server() -> None:
    given_items = items(s1=[40, 30, 20, 10, 10, 10], s2=[30], s3=[30])
    moves = moves_between(SERVERS, given_items, {})
    assert [(move.name, move.target) for move in moves] == [("s1.1", "s2"), ("s1.2", "s3"), ("s1.3", "s3")]
    assert loads_after(given_items, moves, {}) == {"s1": 60, "s2": 60, "s3": 60}


def test_j08_nothing_moves_below_the_upper_bound_and_the_lower_one_is_where_it_ends() -> None:
    at_bound = items(s1=[10] * 12, s2=[10] * 9, s3=[10] * 9)
    assert moves_between(SERVERS, at_bound, {}) == []
    above = items(s1=[10] * 13, s2=[10] * 9, s3=[10] * 8)
    assert sorted(move.target for move in moves_between(SERVERS, above, {})) == ["s2", "s3"]
    assert moves_between(SERVERS, above, {}, 1.3) == []


def test_a_load_that_cannot_move_counts_but_stays() -> None:
    moves = moves_between(SERVERS, items(s1=[10, 10, 10], s2=[10], s3=[10]), {"s2": 30, "s3": 30})
    assert moves == []
    moves = moves_between(SERVERS, items(s1=[], s2=[20, 20], s3=[20]), {"s2": 40})
    assert {(move.source, move.target) for move in moves} == {("s2", "s1")}


def test_an_item_larger_than_the_mean_keeps_its_server_and_others_leave_it() -> None:
    given_items = items(s1=[100, 5, 5], s2=[10], s3=[10])
    moves = moves_between(SERVERS, given_items, {})
    assert sorted(move.name for move in moves) == ["s1.1", "s1.2"]
    left = [item._replace(server="s2") if item.name != "s1.0" else item for item in given_items]
    assert moves_between(SERVERS, left, {}) == []


def test_items_change_places_where_no_single_move_helps() -> None:
    given_items = items(s1=[60, 50], s2=[40, 40], s3=[40, 40])
    moves = moves_between(SERVERS, given_items, {}, 1.1)
    assert len(moves) == 2
    assert {(move.source, move.target) for move in moves} in (
        {("s1", "s2"), ("s2", "s1")},
        {("s1", "s3"), ("s3", "s1")},
    )


def test_a_domain_without_servers_or_load_has_no_moves() -> None:
    assert moves_between((), [], {}) == []
    assert moves_between(SERVERS, items(s1=[0, 0]), {}) == []
    assert ratio([0, 0]) == 1.0


several = st.lists(st.tuples(st.sampled_from(SERVERS), st.integers(0, 1000)), max_size=60).map(
    lambda rows: [PlacedItem(f"i{n}", server, load) for n, (server, load) in enumerate(rows)]
)


@given(several, st.fixed_dictionaries({server: st.integers(0, 500) for server in SERVERS}))
def test_moves_never_raise_the_largest_load_and_repeat_nothing(
    given_items: list[PlacedItem], fixed: dict[str, int]
) -> None:
    moves = moves_between(SERVERS, given_items, fixed)
    before, after = loads_after(given_items, [], fixed), loads_after(given_items, moves, fixed)
    assert max(after.values()) <= max(before.values())
    assert moves_between(SERVERS, reversed(given_items), fixed) == moves
    target = {move.name: move.target for move in moves}
    now = [item._replace(server=target.get(item.name, item.server)) for item in given_items]
    if ratio(after.values()) <= 1.2:
        assert moves_between(SERVERS, now, fixed) == []
