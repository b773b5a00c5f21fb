"""A long conjunction is divided into pieces that match the same, and of which few change with it (SPEC B-10)."""

from __future__ import annotations

import random

import pytest

from tests.filters.merging_cases import of_node, random_alike, random_events
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.filters.merging import filter_of, merge_conjunctions
from wanderbus.filters.normal import Conjunction
from wanderbus.filters.normalising import normal_form
from wanderbus.filters.pieces import pieces_of


def merged(*texts: str) -> Conjunction:
    """The conjunction of several filters of one structure."""
    (found,) = merge_conjunctions([each for text in texts for each in normal_form(parse(text))], "perfect")
    return found


def names(count: int) -> Conjunction:
    """A conjunction with many names."""
    return merged(*[f'x == "name {n * 7919} {"y" * 20}" and y > 3' for n in range(count)])


def texts(conjunction: Conjunction, most: int) -> list[str]:
    return [each.text for each in pieces_of(conjunction, most)]


def test_a_short_one_is_its_own_piece() -> None:
    short = merged("x < 3 and y == 1")
    assert texts(short, 4_096) == ["x < 3 and y == 1"]


def test_pieces_are_short_and_match_the_same() -> None:
    whole, most = names(600), 4_096
    pieces = texts(whole, most)
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= most
    parsed = [parse(each) for each in pieces]
    for n in range(0, 700, 7):
        for y in (3, 4):
            event = Event("s", {"x": f"name {n * 7919} {'y' * 20}", "y": y})
            assert any(each.matches(event) for each in parsed) == filter_of(whole).matches(event) == (n < 600 and y > 3)


def test_one_value_more_changes_one_piece() -> None:
    before, after = set(texts(names(600), 4_096)), set(texts(names(601), 4_096))
    assert len(after - before) == len(before - after) == 1


def test_numbers_dates_patterns_and_kinds_are_kept_apart() -> None:
    parts = [f"x == {n * n}" for n in range(40)] + ['x == "a"', 'x prefix "b"', 'x suffix "z"', 'x == "c"']
    whole = merged(" or ".join(parts))
    pieces = [parse(each) for each in texts(whole, 60)]
    for value in (*range(100), "a", "b", "bb", "c", "d", "dz"):
        event = Event("s", {"x": value})
        assert any(each.matches(event) for each in pieces) == filter_of(whole).matches(event), value


@pytest.mark.parametrize("text", [f'x == "{"a" * 200}" and y > 3', f'not (x contains "{"a" * 200}") and y > 3'])
def test_a_requirement_that_is_too_long_is_left_out_so_that_more_matches(text: str) -> None:
    (whole,) = normal_form(parse(text))
    assert texts(whole, 50) == ["y > 3"]


def test_long_filters_become_short_and_miss_nothing() -> None:
    draw, matched = random.Random(5), 0
    for _ in range(60):
        nodes = random_alike(draw, 12)
        events = random_events(draw, nodes, 30)
        for whole in merge_conjunctions([each for node in nodes for each in normal_form(of_node(node))], "imperfect"):
            pieces = [parse(each) for each in texts(whole, 60)]
            assert max(len(each.text) for each in pieces) <= 60
            for event in events:
                if filter_of(whole).matches(event):
                    matched += 1
                    assert any(each.matches(event) for each in pieces)
    assert matched > 100
