"""Merging against the meaning of the filters (SPEC B-04 to B-09, B-11)."""

from __future__ import annotations

import random
from functools import partial
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.filters import trees
from tests.filters.merging_cases import conjunctions, filters, of_node, random_alike, random_events, random_nodes
from tests.lines import lines_of
from wanderbus import limits
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event
from wanderbus.filters import merging_covered
from wanderbus.filters.ast import Node
from wanderbus.filters.conjunctions import covers
from wanderbus.filters.merging import MODES, Mode, counted, filter_of, merge, merge_conjunctions, precision, recall
from wanderbus.filters.merging_perfect import perfect, structure_of
from wanderbus.filters.normal import AttributeFilter, Conjunction, Interval, Term, TextPattern
from wanderbus.filters.normalising import normal_form, to_node


def merged(*texts: str, mode: Mode = "perfect") -> set[Conjunction]:
    return set(merge_conjunctions(conjunctions(*texts), mode))


def test_a_conjunct_covered_by_another_is_dropped() -> None:
    assert merged("x < 5", "x < 9") == set(conjunctions("x < 9"))


def test_filters_that_differ_in_one_attribute_are_joined_by_disjunction() -> None:
    assert merged("x < 5 and y == a", "x > 9 and y == a") == set(conjunctions("any x (< 5 or > 9) and y == a"))


def test_filters_that_differ_in_two_attributes_stay() -> None:
    texts = "x < 5 and y == a", "x > 9 and y == b"
    assert merged(*texts) == set(conjunctions(*texts))


def test_merging_goes_on_until_nothing_merges() -> None:
    """The four corners become two sides, and these the whole."""
    corners = [f"x == {x} and y == {y}" for x in (1, 2) for y in (1, 2)]
    assert merged(*corners) == set(conjunctions("x in (1, 2) and y in (1, 2)"))


def test_a_merge_can_make_another_possible_in_an_attribute_gone_by() -> None:
    texts = "x == 1 and y == 1", "x == 1 and y == 2", "x == 2 and y in (1, 2)", "x in (1, 2) and y == 3"
    assert merged(*texts) == set(conjunctions("x in (1, 2) and y in (1, 2, 3)"))


def test_a_filter_that_differs_everywhere_is_dropped_where_it_is_covered() -> None:
    assert merged("x < 5 and y < 5", "x < 9 and y < 9") == set(conjunctions("x < 9 and y < 9"))


def test_a_region_with_a_gap_does_not_cover_what_spans_the_gap() -> None:
    texts = (
        "any x (< 1 or > 9) and any y (< 1 or > 9)",
        "any x (< 1 or == 5) and y < 1",
        "any x (< 1 or > 20) and y < 0",
    )
    assert merged(*texts) == set(conjunctions(*texts[:2]))


@pytest.mark.parametrize(
    "other",
    ["x < 9 and z < 9", "x < 9", "x < 9 and y == a and z == 1", "x < b and y == a", "all x < 9 and y == a", "exists x"],
)
def test_another_structure_stays_as_it_is(other: str) -> None:
    """Another name, fewer or more of them, another type or another quantifier (SPEC B-05)."""
    texts = "x < 5 and y == a", other
    for mode in ("perfect", "imperfect"):
        assert merged(*texts, mode=mode) == set(conjunctions(*texts))


def test_disjunction_is_exact_for_any_and_not_for_all() -> None:
    texts = "all x < 5", "all x > 5"
    assert merged(*texts) == set(conjunctions(*texts))
    assert merged("all x < 5", "all x < 3") == set(conjunctions("all x < 5"))
    (wide,) = merged(*texts, mode="imperfect")
    assert filter_of(wide).matches(Event("S", {"x": [1, 9]}))
    assert not filter_of(wide).matches(Event("S", {"x": [1, 5]}))


def test_two_conditions_on_one_attribute_merge_whichever_of_them_differs() -> None:
    texts = [f"any x == 5 and any x == {value} and y == 1" for value in (1, 7, 9)]
    (one,) = merged(*texts)
    assert filter_of(one).matches(Event("S", {"x": [9, 5], "y": 1}))
    assert not filter_of(one).matches(Event("S", {"x": [1, 9], "y": 1}))


def test_more_patterns_than_one_clause_may_have_make_several() -> None:
    texts = [f"x contains t{number:03}" for number in range(2 * limits.CLAUSE_TERMS_MAX)]
    result = merged(*texts)
    assert 1 < len(result) < 10
    assert all(any(filter_of(each).matches(Event("S", {"x": f"a t{n:03}"})) for each in result) for n in (0, 77, 200))
    (wide,) = merged(*texts, mode="imperfect")
    assert filter_of(wide).matches(Event("S", {"x": "nothing of them"}))


def test_a_filter_that_nothing_merges_with_is_the_one_given() -> None:
    given = filters("x<5", "y<5 ", "x  > 7")
    result = merge(given)
    assert given[1] in result
    assert [str(each) for each in result if each is not given[1]] == [
        str(filter_of(*conjunctions("any x (< 5 or > 7)")))
    ]


def test_random_structures_merge_to_nothing_less_and_stay_right() -> None:
    """SPEC B-11."""
    texts = [f"a{number} < {number} and b{number} == x" for number in range(30)]
    for mode in MODES:
        assert merged(*texts, mode=mode) == set(conjunctions(*texts))


@pytest.mark.parametrize("seed", range(60))
def test_perfect_is_the_union_and_imperfect_misses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        nodes = random_nodes(rng)
        originals = [of_node(node) for node in nodes]
        forms = [each for filter in originals for each in normal_form(filter)]
        events = random_events(rng, nodes)
        for mode in MODES:
            root = of_node(to_node(tuple(merge_conjunctions(forms, mode, precision_min=0.7))))
            for event in events:
                wanted = any(each.matches(event) for each in originals)
                found = root.matches(event)
                assert found >= wanted, (mode, event)
                assert mode != "perfect" or found == wanted, event


@given(st.lists(trees.nodes(trees.NAMES[:2], residuals=True), max_size=6), trees.events(trees.NAMES[:2]))
def test_perfect_is_the_union_of_any_filters(nodes: list[Node], event: Event) -> None:
    originals = [of_node(node) for node in nodes]
    assert any(each.matches(event) for each in merge(originals)) == any(each.matches(event) for each in originals)


@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_the_filters_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    forms = [each for node in random_nodes(rng) for each in normal_form(node)]
    shuffled = rng.sample(forms, len(forms))
    for mode in MODES:
        one, other = (merge_conjunctions(each, mode, precision_min=0.6) for each in (forms, shuffled))
        assert set(one) == set(other)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_left_to_do(seed: int) -> None:
    """No two of the result differ in one attribute filter alone, and none covers another: compared in pairs."""
    rng = random.Random(seed)
    shape = [("x", "any"), ("y", "any"), ("z", "all")][: rng.choice((2, 3))]
    ends = rng.choice((3, 10))
    forms = [Conjunction(tuple(_filter(rng, *each, ends) for each in shape)) for _ in range(40)]
    result = perfect(forms)
    for one, other in combinations(result, 2):
        assert not covers(one, other)
        assert not covers(other, one)
        different = [mine for mine, its in zip(one.filters, other.filters, strict=True) if mine != its]
        assert len(different) > 1 or different[0].quantifier == "all"


def _filter(rng: random.Random, name: str, quantifier: str, ends: int) -> AttributeFilter:
    low = rng.randrange(ends)
    region = Interval(low, low + rng.randrange(ends)) if rng.random() < 0.5 else Interval(None, low, False, True)
    return AttributeFilter(name, quantifier, (Term("number", (region,)),))  # type: ignore[arg-type]


def test_filters_with_patterns_cover_and_are_covered() -> None:
    """Two attributes differ each time, so nothing merges."""
    wide = "any s (contains ab or contains cd or == x) and n < 9"
    for narrow in ("s contains xabx and n < 5", "s == cde and n < 5", "any s (== x or suffix acd) and n < 5"):
        assert merged(wide, narrow) == merged(narrow, wide) == set(conjunctions(wide))
    apart = "s contains ad and n < 5", "s == y and n < 4"
    assert merged(wide, *apart) == set(conjunctions(wide, *apart))
    assert merged("s >= a and n < 9", "any s (prefix b and contains q) and n < 5") == set(
        conjunctions("s >= a and n < 9")
    )


def test_in_blocks_what_is_covered_goes_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks far smaller than the structure: the union stays, and the largest still drop all that they cover."""
    rng = random.Random(1)
    forms = [Conjunction((_filter(rng, "x", "all", 50), _filter(rng, "y", "all", 50))) for _ in range(400)]
    exact = set(perfect(forms))
    monkeypatch.setattr(merging_covered, "BLOCK", 8)
    bounded = set(perfect(forms))
    assert exact <= bounded
    assert len(bounded) < len(set(forms)) / 2
    assert all(any(covers(one, each) for one in exact) for each in bounded)


def test_the_first_of_two_mutually_covering_filters_stays() -> None:
    """A string that ends in ``ab`` contains ``b``: both filters are equal, and one of them must stay."""
    ab, b = TextPattern("suffix", "ab"), TextPattern("contains", "b")
    table = [AttributeFilter("x", "any", (Term("string", (Interval(None, None),), each),)) for each in ((ab,), (b, ab))]
    assert merging_covered.uncovered([(0,), (1,)], table) == [(0,)]
    assert merging_covered.uncovered([(1,), (0,)], table) == [(1,)]


def test_blocks_divide_at_what_no_filter_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with different values of w never cover each other, so each value is compared alone and completely."""
    texts = [f"w == w{word} and all x < {end} and all y < {end}" for word in range(9) for end in range(1, 8)]
    monkeypatch.setattr(merging_covered, "BLOCK", 4)
    texts = [text.replace("w ==", "all w ==") for text in texts]
    assert merged(*texts) == set(conjunctions(*(f"all w == w{word} and all x < 7 and all y < 7" for word in range(9))))


def test_structure_is_names_types_quantifiers_and_residuals() -> None:
    rng = random.Random(3)
    for node in random_alike(rng, 20):
        for each in normal_form(node):
            assert structure_of(each) == (tuple(one.structure for one in each.filters), each.residuals)


def test_precision_and_recall_are_counted() -> None:
    """The merged filter matches four events, two of them among the three that the filters match (SPEC B-08)."""
    events = [Event("S", {"x": value}) for value in (1, 2, 3, 4, 8, 9)]
    before, after = filters("x < 3", "x == 9"), filters("x < 5")
    assert precision(before, after, events) == 0.5
    assert recall(before, after, events) == pytest.approx(2 / 3)
    found = counted(before, after, events)
    assert (found.originals, found.merged, found.both) == (3, 4, 2)


def test_precision_and_recall_of_an_empty_set_are_1() -> None:
    assert precision(filters("x < 3"), filters("x < 3"), []) == 1.0
    assert recall([], filters("x < 3"), [Event("S", {"x": 1})]) == 1.0


def test_an_unknown_mode_and_a_share_beyond_one_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="perfekt"):
        merge([], "perfekt")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"1\.5"):
        merge([], "adaptive", precision_min=1.5)


@pytest.mark.parametrize("mode", ["perfect", "imperfect", "adaptive"])
def test_the_work_is_polynomial(mode: Mode) -> None:
    """SPEC B-09: lines executed when the number of filters doubles; some merge, some are covered, some stay."""
    counts = []
    for size in (8, 16, 32, 64):
        some = filters(*(f"X > {n} and X < {n + n % 7 + 1} and Y == {n % 3}" for n in range(size)))
        counts.append(lines_of(partial(merge, some, mode)))
    assert all(later <= 2**2.5 * earlier for earlier, later in pairwise(counts)), counts
