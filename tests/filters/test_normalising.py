"""Normal forms: true exactly where the tree is, simplified, bounded, and trees again."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings

from tests.filters import trees
from wanderbus import limits
from wanderbus.errors import EventError
from wanderbus.event import Event, check_event
from wanderbus.filters import Filter, conjunctions, parse, regions, text_implications
from wanderbus.filters.ast import (
    EVERYTHING,
    NOTHING,
    And,
    Clause,
    Exists,
    Node,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    Quantified,
    Quantifier,
    Residual,
)
from wanderbus.filters.clauses import holds, terms_of, union
from wanderbus.filters.evaluate import evaluate, item_holds
from wanderbus.filters.normal import AttributeFilter, Conjunction, Interval, Term, TextPattern
from wanderbus.filters.normalising import normal_form, to_node

DAY = datetime(2026, 11, 21, tzinfo=UTC)


def is_publishable(event: Event) -> bool:
    try:
        return check_event(event) is event
    except EventError:
        return False


def asked(operator: Operator, operand: Operand | tuple[Operand, ...], name: str = "a") -> Node:
    return Quantified("any", name, Predicate(operator, operand))


@settings(max_examples=150, deadline=None)
@given(trees.nodes(residuals=True), trees.events())
def test_it_is_true_exactly_where_the_tree_is(node: Node, event: Event) -> None:
    if is_publishable(event):
        assert (evaluate(to_node(normal_form(node)), event) is True) == (evaluate(node, event) is True)


def test_it_is_true_exactly_where_directed_trees_are() -> None:
    matched = 0
    for seed in range(3_000):
        random = Random(seed)
        node = trees.random_node(random, residuals=seed % 3 == 0)
        event = trees.random_event(random, node)
        if is_publishable(event):
            truth = evaluate(node, event) is True
            matched += truth
            assert (evaluate(to_node(normal_form(node)), event) is True) == truth, seed
    assert 600 < matched < 2_400


def test_a_form_of_its_tree_is_itself() -> None:
    for seed in range(1_500):
        form = normal_form(trees.random_node(Random(seed), residuals=seed % 3 == 0))
        assert normal_form(to_node(form)) == form, seed


@pytest.mark.parametrize("wanted", [True, False])
def test_a_clause_is_the_values_that_it_is_true_of(wanted: bool) -> None:
    values = [value for pool in trees.OPERANDS.values() for value in pool]
    for seed in range(1_000):
        clause = trees.random_clause(Random(seed), 3)
        terms = terms_of(clause, wanted)
        for value in values:
            assert holds(terms, value) == (item_holds(clause, value) is wanted), (seed, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not Price < 25", "all Price >= 25"),
        ("not (Price < 25 and Price > 5)", "all Price (<= 5 or >= 25)"),
        ("not any Price (< 25 and > 5)", "all Price (<= 5 or >= 25)"),
        ("not all Price < 25", "Price >= 25"),
        ("not not Price < 25", "Price < 25"),
        ("Price == 1.0", "Price == 1"),
        ("Price == -0.0", "Price == 0"),
        ("Price > 5 and Price < 10", "Price > 5 and Price < 10"),
        ("Price < 5 or Price < 9", "Price < 9"),
        ("Price < 5 or Price >= 5", "any Price (< 0 or >= 0)"),
        ("Price < 5 or Price > 5", "Price != 5"),
        ("Price < 5 and Price > 5", "nothing"),
        ("Name prefix PETR and Name == PETR4", 'Name == "PETR4"'),
        ("Name prefix PETR and Name == VALE3", "nothing"),
        ("Name suffix R4 and Name suffix PETR4", 'Name suffix "PETR4"'),
        ("Name contains ET and Name suffix PETR4", 'Name suffix "PETR4"'),
        ("Name prefix PETR and Name contains ET", 'Name prefix "PETR"'),
        ("Name suffix R4 and Name suffix R5", "nothing"),
        ("Name in (A, B, AB) and Name contains B", 'Name in ("AB", "B")'),
        ("Name in (1, A, 2.0) and Name != 2", "Name == 1"),
        ("exists Name and Name == 1", "Name == 1"),
        ("not exists Name and Name == 1", "nothing"),
        ("not exists Name", "not exists Name"),
        ("any a > 5 and any a > 3", "a > 5"),
        ("any a > 5 and all a < 3", "nothing"),
        ("all a > 5 and all a < 9", "all a (> 5 and < 9)"),
        ("a == 1 or a == 1 and b == 2", "a == 1"),
        ("a == 1 and b == 2 or b == 2 and a == 1", "a == 1 and b == 2"),
        ("all a (> 5 or <= 5)", "all a (< 0 or >= 0)"),
        ("a == true or a == false", "a in (false, true)"),
        ("", "everything"),
        ("a == 1 or everything", "everything"),
        ("a == 1 and nothing", "nothing"),
    ],
)
def test_it_is_simplified(text: str, expected: str) -> None:
    written = str(Filter("", "eci", to_node(normal_form(parse(text)))))
    assert written == expected


@pytest.mark.parametrize(
    ("clause", "wanted", "values", "never"),
    [
        (Predicate("in", ()), False, [1, "x", True, DAY], []),
        (Predicate("in", (1, "x")), False, [], [1, 2, "x", "y", True]),
        (Predicate("in", (1, 2)), False, [3, 1.5], [1, 2.0, "x"]),
        (Predicate("in", (float("nan"), 1)), True, [1], [2]),
        (Predicate("in", (float("nan"), 1)), False, [], [1, 2]),
        (Predicate("in", (float("nan"),)), False, [], [1, float("nan")]),
        (Predicate("<", float("nan")), False, [], [1]),
        (Predicate("<", True), True, [], [False, True, 0]),
        (Predicate("prefix", 1), False, [], [1, "1"]),
        (Predicate("==", 1), False, [2], [1, True, "1"]),
        (Predicate("!=", 2**53 + 1), True, [2**53, 2.0**53], [2**53 + 1]),
        (Predicate("contains", ""), True, ["", "x"], [1]),
        (Predicate("suffix", ""), False, [], ["", "x", 1]),
        (Predicate("prefix", "\U0010ffff"), False, ["", "x", "\ue000"], ["\U0010ffff", "\U0010ffffx"]),
        (Predicate(">", datetime(2026, 11, 21, tzinfo=UTC)), False, [DAY], [1]),
        (And(()), True, [1, "x", True, DAY], []),
        (And(()), False, [], [1, "x"]),
    ],
)
def test_not_true_does_not_mean_false(clause: Clause, wanted: bool, values: list[Any], never: list[Any]) -> None:
    terms = terms_of(clause, wanted)
    assert all(holds(terms, value) for value in values)
    assert not any(holds(terms, value) for value in never)


def test_a_clause_that_every_value_fits_asks_whether_there_is_one() -> None:
    assert normal_form(Quantified("all", "a", And(()))) == (Conjunction((AttributeFilter("a", "exists"),)),)
    (conjunction,) = normal_form(Quantified("any", "a", And(())))
    assert conjunction.filters[0].quantifier == "any", "an empty list has no item"
    assert to_node((conjunction,)) == Quantified("any", "a", And(()))


def test_everything_and_nothing() -> None:
    assert normal_form(EVERYTHING) == (Conjunction(),)
    assert normal_form(NOTHING) == ()
    assert to_node(()) == NOTHING
    assert to_node((Conjunction(),)) == EVERYTHING
    assert normal_form(Quantified("any", "a", Or(()))) == ()
    assert normal_form(Quantified("all", "a", Or(()))) == (Conjunction((AttributeFilter("a", "all"),)),)


def test_a_residual_and_its_contrary_are_nothing() -> None:
    twice: list[Node] = [Residual("test", trees.IsEven("a")) for _ in range(2)]
    even, again = twice
    assert even is not again
    assert normal_form(And((even, Not(again)))) == ()
    assert normal_form(And((even, again, asked("==", 1)))) == (
        Conjunction((AttributeFilter("a", "any", (Term("number", (Interval(1, 1),)),)),), (even,)),
    )
    odd: Node = Residual("test", trees.IsEven("b"))
    assert normal_form(And((even, odd))) == normal_form(And((odd, even)))


def test_points_are_tried_and_patterns_are_compared() -> None:
    (one,) = terms_of(And((Predicate("prefix", "ab"), Not(Predicate("contains", "x")), Predicate("suffix", "b"))))
    assert one.patterns == (TextPattern("contains", "x", False), TextPattern("suffix", "b"))
    assert terms_of(And((Predicate("prefix", "ab"), Not(Predicate("contains", "b"))))) == ()
    assert terms_of(And((Predicate("<=", "b"), Predicate(">=", "b"), Predicate("contains", "c")))) == ()


@pytest.mark.parametrize("text", ["", "a", "b", "ab", "abc", "bc", "cab", "bca", "xbcx", "abcabc"])
def test_implications_of_patterns_hold(text: str) -> None:
    texts = ("a", "b", "bc", "abc", "ca")
    known = [TextPattern("suffix", some, wanted) for some in texts for wanted in (True, False)]
    known += [TextPattern("contains", some, wanted) for some in texts for wanted in (True, False)]
    for one in known:
        for other in known:
            if text_implications.fits(text, (one,)) and text_implications.follows(other, "", (one,)):
                assert text_implications.fits(text, (other,)), (one, other)
            if text_implications.are_contradictory("", (one, other)):
                assert not text_implications.fits(text, (one, other)), (one, other)
    assert text_implications.reduced(
        [TextPattern("suffix", "bc"), TextPattern("suffix", "c"), TextPattern("contains", "b")]
    ) == (TextPattern("suffix", "bc"),)


# How large it grows -------------------------------------------------------------------------------------------------


def wide(count: int) -> Node:
    """Return a filter whose full form has two to the ``count`` conjunctions."""
    return And(tuple(Or((asked("==", 1, f"a{number}"), asked("==", 2, f"b{number}"))) for number in range(count)))


def matches(node: Node, **attributes: Any) -> bool:
    return evaluate(node, Event("S", attributes)) is True


def test_a_form_above_the_limit_stays_unexpanded() -> None:
    form = normal_form(wide(12))
    assert 1 < len(form) <= limits.NORMAL_FORM_CONJUNCTIONS_MAX
    assert all(conjunction.residuals for conjunction in form)
    event = {f"a{number}": 1 for number in range(12)}
    assert matches(to_node(form), **event)
    assert not matches(to_node(form), **{**event, "a11": 2})
    assert normal_form(wide(3)) == normal_form(to_node(normal_form(wide(3))))
    assert len(normal_form(wide(3))) == 8


def test_too_many_alternatives_stay_as_they_are() -> None:
    count = 3 * limits.NORMAL_FORM_CONJUNCTIONS_MAX
    node: Node = Or(tuple(And((asked("==", 1, f"a{number}"), asked("==", 1, "b"))) for number in range(count)))
    form = normal_form(node)
    assert len(form) == limits.NORMAL_FORM_CONJUNCTIONS_MAX
    for number in (0, count - 1):
        assert matches(to_node(form), b=1, **{f"a{number}": 1})
    assert not matches(to_node(form), b=1)
    opposite = normal_form(Not(node))
    assert not matches(to_node(opposite), b=1, **{f"a{number}": 1 for number in range(count)})
    assert matches(to_node(opposite), b=2, **{f"a{number}": 1 for number in range(count)})


def test_too_many_contraries_stay_as_they_are() -> None:
    count = 2 * limits.NORMAL_FORM_CONJUNCTIONS_MAX
    node: Node = Not(And(tuple(Or((asked("==", 1, f"a{number}"), asked("==", 1, "b"))) for number in range(count))))
    form = normal_form(node)
    assert len(form) == limits.NORMAL_FORM_CONJUNCTIONS_MAX
    ones = {f"a{number}": 1 for number in range(count)}
    for number in (0, count - 1):
        assert matches(to_node(form), **{**ones, "b": 2, f"a{number}": 2})
        assert not matches(to_node(form), **{**ones, "b": 1, f"a{number}": 2})
    assert not matches(to_node(form), **{**ones, "b": 2})


def test_alternatives_for_one_attribute_are_one() -> None:
    (conjunction,) = normal_form(Or(tuple(asked("==", 2 * number) for number in range(5_000))))
    assert len(conjunction.filters[0].terms[0].region) == 5_000


def test_too_many_questions_stay_as_they_are() -> None:
    count = 2 * limits.CONJUNCTION_FILTERS_MAX
    different: Node = And(tuple(asked("==", 1, f"a{number:04}") for number in range(count)))
    alike: Node = And(tuple(asked("==", number) for number in range(count)))
    for node in (different, alike):
        (conjunction,) = normal_form(node)
        assert len(conjunction.filters) == limits.CONJUNCTION_FILTERS_MAX
        assert len(conjunction.residuals) == limits.CONJUNCTION_FILTERS_MAX


def test_too_many_patterns_stay_as_they_are() -> None:
    words = tuple(Predicate("contains", f"<{number}>") for number in range(limits.CLAUSE_TERMS_MAX))
    clauses: list[Clause] = [And(words), Or(words), Not(Or(words))]
    for clause in clauses:
        node: Node = Quantified("any", "a", clause)
        (conjunction,) = normal_form(node)
        assert conjunction.residuals == (node,)
        assert normal_form(Not(node)) == (Conjunction((), (Not(node),)),)
    fewer: Clause = And((Or(words[:40]), Or(words[40:80])))
    assert normal_form(Quantified("any", "a", fewer))[0].residuals, "40 times 40 terms"
    assert not normal_form(Quantified("any", "a", Or(words[:60])))[0].residuals


def test_patterns_that_multiply_are_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[Clause] = [Or(tuple(Predicate("contains", f"<{n} {side}>") for n in range(60))) for side in "ab"]
    work = [0]
    count_calls(monkeypatch, work, (text_implications, "reduced"))
    assert normal_form(Quantified("any", "a", And(tuple(words))))[0].residuals
    assert work[0] == 0


def test_one_of_mutually_covering_terms_stays() -> None:
    region = regions.prefixed("ab")
    one, other = (Term("string", region, (TextPattern("contains", text),)) for text in "ab")
    assert union(((one,), (other,))) == (other,)


def test_conjunctions_on_the_way_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    work = [0]
    count_calls(monkeypatch, work, (conjunctions, "conjunction"))
    choices = (And((wide(8), Exists(f"c{number}"))) for number in range(40))
    assert len(normal_form(Or(tuple(choices)))) <= limits.NORMAL_FORM_CONJUNCTIONS_MAX
    assert work[0] < 10 * limits.NORMAL_FORM_CONJUNCTIONS_MAX


def deep(depth: int) -> Node:
    """Return a filter in which every level would multiply the levels below it."""
    node = asked("==", 1, "z")
    for level in range(depth):
        choices = (Or((asked("==", level, f"a{n}"), asked("==", 2, f"b{n}"))) for n in range(8))
        node = And((Or((node, asked("==", 1, f"y{level}"))), *choices))
    return node


def any_of(quantifier: Quantifier, count: int) -> Node:
    return And(tuple(Quantified(quantifier, "a", Predicate("!=", number)) for number in range(count)))


@pytest.mark.parametrize(
    ("grow", "power"),
    [
        (wide, 2.5),
        (deep, 2.5),
        (lambda size: Or(tuple(wide(3) for _ in range(size))), 2.5),
        (lambda size: any_of("any", size), 2.5),
        (lambda size: any_of("all", size), 1.5),
    ],
)
def test_the_work_is_polynomial(grow: Any, power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC B-09: conjunctions made, and ends compared, when the size doubles."""
    counts = []
    for size in (8, 16, 32, 64):
        work = [0]
        count_calls(monkeypatch, work, (conjunctions, "covers"), (conjunctions, "conjunction"), (regions, "interval"))
        normal_form(grow(size))
        monkeypatch.undo()
        counts.append(work[0])
    assert all(later <= 2**power * max(earlier, 1) + 30_000 for earlier, later in pairwise(counts)), counts
    assert counts[-1] < 400_000, counts


def count_calls(monkeypatch: pytest.MonkeyPatch, work: list[int], *functions: tuple[ModuleType, str]) -> None:
    for module, name in functions:
        original = getattr(module, name)

        def counted(*arguments: Any, _original: Any = original, **named: Any) -> Any:
            work[0] += 1
            return _original(*arguments, **named)

        monkeypatch.setattr(module, name, counted)
