"""Merging between perfect and imperfect, and its estimates of precision (SPEC S-04)."""

from __future__ import annotations

import random
from itertools import pairwise, product

import pytest

from tests.filters.merging_cases import conjunctions, of_node, random_alike, random_events
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.merging import counted, filter_of, merge_conjunctions, merging_of
from wanderbus.filters.merging_clauses import widened
from wanderbus.filters.merging_perfect import structure_of
from wanderbus.filters.normal import Conjunction
from wanderbus.filters.normalising import normal_form

BOUNDS = (0.3, 0.6, 0.8, 0.95)


def as_filters(forms: list[Conjunction]) -> list[Filter]:
    return [filter_of(each) for each in forms]


def grid(size: int) -> list[Event]:
    """Events of every pair of values, as the volume estimate assumes for `x` and `y` with these ends."""
    return [Event("S", {"x": x / 2, "y": y / 2}) for x, y in product(range(1, 2 * size), repeat=2)]


def boxes(rng: random.Random, count: int) -> list[Conjunction]:
    """Return boxes of whole numbers from 1 to 9."""
    texts: list[str] = []
    for _ in range(count):
        (x, x_end), (y, y_end) = (sorted(rng.sample(range(1, 10), 2)) for _ in "xy")
        texts.append(f"x >= {x} and x <= {x_end} and y >= {y} and y <= {y_end}")
    return conjunctions(*texts)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("seed", range(8))
def test_each_merged_filter_keeps_to_the_bound_by_volume(seed: int, bound: float) -> None:
    """Counted over the cells themselves: their ends, and one value between any two."""
    forms = boxes(random.Random(seed), 8)
    ends = {
        name: sorted({end for each in merge_conjunctions(forms) for end in _ends(each, name)}) for name in ("x", "y")
    }
    cells = [Event("S", {"x": x, "y": y}) for x, y in product(*(_cells(ends[name]) for name in ("x", "y")))]
    originals = as_filters(forms)
    for each in as_filters(merge_conjunctions(forms, "adaptive", precision_min=bound)):
        assert counted(originals, [each], cells).precision >= bound - 1e-9


def _ends(conjunction: Conjunction, name: str) -> list[float]:
    return [
        end
        for each in conjunction.filters
        if each.attribute == name
        for term in each.terms
        for interval in term.region
        for end in (interval.low, interval.high)
        if isinstance(end, int | float)
    ]


def _cells(ends: list[float]) -> list[float]:
    between = [(low + high) / 2 for low, high in pairwise(ends)]
    return sorted([ends[0] - 1, *ends, *between, ends[-1] + 1])


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("seed", range(8))
def test_every_structure_keeps_to_the_bound_by_counting(seed: int, bound: float) -> None:
    rng = random.Random(seed)
    nodes = [node for _ in range(2) for node in random_alike(rng, 10)]
    sample = random_events(rng, nodes, 100)
    groups: dict[object, list[Conjunction]] = {}
    for node in nodes:
        for each in normal_form(of_node(node)):
            groups.setdefault(structure_of(each), []).append(each)
    for group in groups.values():
        merged = merging_of("adaptive", bound, sample)(group)
        found = counted(as_filters(group), as_filters(merged), sample)
        assert found.precision >= bound
        assert found.recall == 1.0


def test_a_lower_bound_gives_fewer_filters() -> None:
    forms = boxes(random.Random(5), 20)
    sizes = [len(merge_conjunctions(forms, "adaptive", precision_min=bound)) for bound in (0.99, 0.8, 0.6, 0.3, 0.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 2


def test_its_ends_are_perfect_and_imperfect() -> None:
    forms = boxes(random.Random(6), 12)
    assert set(merge_conjunctions(forms, "adaptive", precision_min=1.0)) == set(merge_conjunctions(forms, "perfect"))
    assert merge_conjunctions(forms, "adaptive", precision_min=0.0) == merge_conjunctions(forms, "imperfect")


def test_the_cheapest_are_fused_first() -> None:
    """Two boxes that nearly are one, and one far away: only the first two fuse."""
    near = ("x > 0 and x < 10 and y > 0 and y < 10", "x > 1 and x < 11 and y > 0 and y < 11")
    far = "x > 90 and x < 91 and y > 95 and y < 99"
    merged = merge_conjunctions(conjunctions(*near, far), "adaptive", precision_min=0.5)
    assert set(merged) == set(conjunctions("x > 0 and x < 11 and y > 0 and y < 11", far))


def test_a_sample_gives_the_cost_of_fusing() -> None:
    """A region without events lets no event through."""
    texts = "x < 2 and y < 2", "x > 8 and y > 8"
    diagonal = [Event("S", {"x": value, "y": value}) for value in range(10)]
    assert len(merge_conjunctions(conjunctions(*texts), "adaptive", precision_min=0.9, events=diagonal)) == 1
    assert len(merge_conjunctions(conjunctions(*texts), "adaptive", precision_min=0.9, events=grid(10))) == 2


def test_a_sample_counts_lists_that_fit_neither_all() -> None:
    texts = "all x < 2 and y < 2", "all x > 8 and y < 3"
    mixed = [Event("S", {"x": [1, 9], "y": 1}), Event("S", {"x": [1], "y": 1}), Event("S", {"x": 9, "y": 1})]
    assert len(merge_conjunctions(conjunctions(*texts), "adaptive", precision_min=0.9, events=mixed)) == 2
    assert len(merge_conjunctions(conjunctions(*texts), "adaptive", precision_min=0.6, events=mixed)) == 1


def test_patterns_are_not_free() -> None:
    """Fusing them would let other pairs through, though all strings are one cell without them."""
    texts = [f"w contains a{number} and v contains b{number}" for number in range(4)]
    assert len(merge_conjunctions(conjunctions(*texts), "adaptive", precision_min=0.9)) == 4


def test_neighbours_among_many_filters_are_fused() -> None:
    """Small boxes all over, more than are compared in pairs, the ends of each its own."""
    rng = random.Random(2)
    corners = [(rng.random(), rng.random()) for _ in range(300)]
    forms = conjunctions(*(f"x > {x} and x < {x + 0.02} and y > {y} and y < {y + 0.02}" for x, y in corners))
    assert len(merge_conjunctions(forms)) == 300
    assert len(merge_conjunctions(forms, "adaptive", precision_min=0.3)) < 200


def test_an_all_widened_to_every_value_keeps_its_structure() -> None:
    """Rows of one structure are compared further; `exists`, which means the same, has no values to compare."""
    others = "prefix '' or in (true, false) or < 2026-11-21 or >= 2026-11-21"
    one, other = (each.filters[0] for each in conjunctions(f"all x (< 5 or {others})", f"all x (>= 5 or {others})"))
    assert widened([one, other]).structure == one.structure == ("x", "all", ("boolean", "date", "number", "string"))
