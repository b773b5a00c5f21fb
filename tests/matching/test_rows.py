"""Rows of filters, read by a slow interpreter, against evaluation (SPEC B-01; DESIGN 7.2, 7.4)."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given, settings

from tests.filters import trees
from tests.matching import workload
from wanderbus.event import Event
from wanderbus.filters import cesql, normal_form, parse
from wanderbus.filters.ast import And, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.cesql.tree import LiteralValue
from wanderbus.filters.evaluate import evaluate, kind_of
from wanderbus.filters.normal import NormalForm
from wanderbus.matching import rows as module
from wanderbus.matching.layout import OPEN_HIGH, OPEN_LOW
from wanderbus.matching.rows import (
    BOOLEAN,
    CLAUSES_MAX,
    CLAUSES_NEEDED_MAX,
    DATE,
    EMPTY,
    MISSING,
    NEEDED_MAX,
    NORMALISED_ROWS_MAX,
    NUMBER,
    ORDER,
    PIECES_MAX,
    PRESENCE,
    PRESENT,
    ROWS_MAX,
    SPLIT_MAX,
    WORD,
    Clause,
    FilterRows,
    Piece,
    rows_of,
)
from wanderbus.work import WorkBudget

INF: Final = math.inf
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
KIND: Final = {BOOLEAN: "boolean", NUMBER: "number", DATE: "date", WORD: "string", ORDER: "string"}


def above(value: float) -> float:
    return math.nextafter(value, INF)


def below(value: float) -> float:
    return math.nextafter(value, -INF)


# Meaning of rows ------------------------------------------------------------------------------------------------------


def doubles_of(value: Any) -> set[float]:
    """Return the doubles that stand for a boolean, a number or a date: two, if it lies between them."""
    if isinstance(value, datetime):
        value = (value - EPOCH) // timedelta(microseconds=1)
    near = float(value)
    several = (below(near), near, above(near))
    return {max(each for each in several if each <= value), min(each for each in several if each >= value)}


def item_fits(piece: Piece, item: Any) -> bool:
    _, kind, low, high = piece[:4]
    if kind_of(item) != KIND[kind]:
        return False
    if kind == WORD:
        return item not in low if high is None else low <= item <= high
    if kind == ORDER:
        low_open, high_open = piece[4:]
        is_after = low is None or low < item or (low == item and not low_open)
        return is_after and (high is None or item < high or (item == high and not high_open))
    opens = piece[4] if kind in (NUMBER, DATE) else 0
    near = doubles_of(item)
    nearer_low, nearer_high = (
        (max(near) if opens & OPEN_LOW else min(near)),
        (min(near) if opens & OPEN_HIGH else max(near)),
    )
    return bool(low <= nearer_low and nearer_high <= high)


def piece_holds(piece: Piece, attributes: Mapping[str, Any]) -> bool:
    name, kind, low, high = piece[:4]
    value = attributes.get(name)
    if kind == PRESENCE:
        state = MISSING if name not in attributes else EMPTY if value == [] else PRESENT
        return bool(low <= state <= high)
    items = value if isinstance(value, list) else [value] if name in attributes else []
    return any(item_fits(piece, item) for item in items)


def some_row_holds(found: FilterRows, event: Event) -> bool:
    values = event.attributes
    return any(all(any(piece_holds(piece, values) for piece in clause) for clause in row) for row in found.rows)


def is_told_exactly(found: FilterRows, event: Event) -> bool:
    """Return whether no row may hold of this event unless the filter is true."""
    values = list(event.attributes.values())
    return found.is_exact and (found.is_exact_on_lists or not any(isinstance(value, list) for value in values))


def agrees(node: Node, found: FilterRows, event: Event) -> bool:
    """Compare the rows of ``node`` with its evaluation for one event; return whether they are exact for it."""
    wanted = evaluate(node, event) is True
    held = some_row_holds(found, event)
    is_exact = is_told_exactly(found, event)
    assert held or not wanted, ("missed", node, found, event)
    assert not is_exact or held == wanted, ("too much", node, found, event)
    return is_exact


def check_form(found: FilterRows) -> None:
    assert found.is_exact or not found.is_exact_on_lists
    mixed = [clause for row in found.rows for clause in row if len({piece[1] for piece in clause}) > 1]
    assert not mixed or len(found.rows) + min(len({piece[1] for piece in clause}) for clause in mixed) - 1 > SPLIT_MAX
    for clause in (clause for row in found.rows for clause in row):
        assert len({piece[0] for piece in clause}) == 1
        assert not {WORD, ORDER} <= {piece[1] for piece in clause}
        for piece in clause:
            check_piece(piece)


def check_piece(piece: Piece) -> None:
    _, kind, low, high = piece[:4]
    assert type(piece) is tuple
    assert len(piece) == {ORDER: 6, PRESENCE: 4, WORD: 4}.get(kind, 5)
    if kind == WORD:
        assert low == high or (type(low) is tuple and high is None)
    elif kind == ORDER:
        ends = [(end, is_open) for end, is_open in zip(piece[2:4], piece[4:], strict=True)]
        assert all(type(end) is str or (end is None and is_open is False) for end, is_open in ends)
        assert low is None or high is None or low <= high
    else:
        assert type(low) is type(high) is float
        assert low <= high
        assert kind in (NUMBER, DATE) or {low, high} <= {MISSING, PRESENT, EMPTY}


def examine(node: Node, events: Sequence[Event]) -> int:
    """Compare the rows of ``node`` with its evaluation; return for how many events they are exact."""
    found = rows_of(node)
    check_form(found)
    return sum(agrees(node, found, event) for event in events)


# Filters of any kind -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_filters_of_any_shape(seed: int) -> None:
    rng = random.Random(seed)
    exact = 0
    for _ in range(1_000):
        node = trees.random_node(rng, residuals=True)
        exact += examine(node, [trees.random_event(rng, node if at < 4 else None) for at in range(5)])
    assert exact > 1_000, "few are told exactly"


@pytest.mark.parametrize("seed", range(2))
def test_comparisons_are_exact(seed: int) -> None:
    rng = random.Random(seed)
    exact = 0
    for _ in range(500):
        exact += examine(workload.plain(rng), [workload.plain_event(rng) for _ in range(6)])
    assert exact > 1_000


@pytest.mark.parametrize("seed", range(2))
def test_generated_filters_of_few_values_and_names(seed: int) -> None:
    """Small filters about two attributes, where questions meet each other and rows do hold."""
    rng = random.Random(seed)
    exact = 0
    for _ in range(1_500):
        node = trees.random_node(rng, depth=2, names="ab")
        exact += examine(node, [trees.random_event(rng, node) for _ in range(3)])
    assert exact > 1_000


@given(trees.nodes(residuals=True), trees.events())
@settings(max_examples=300, deadline=None)
def test_examples_found_by_hypothesis(node: Any, event: Event) -> None:
    examine(node, [event])


_GREAT: Final = (2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2.0**53, 2**62 + 1, 2**63 - 1, -(2**53) - 1, 10**400)
_LESS: Final = (0, -0.0, 5e-324, 1, sys.float_info.max, INF, -INF, -(10**400), 2**70 + 1)
_VALUES: Final = sorted(
    {
        near
        for end in _GREAT + _LESS
        for near in ([float(end)] if abs(end) < 10**308 else [end] if isinstance(end, float) else [])
        + ([int(end) + step for step in (-1, 0, 1)] if abs(end) < 2**63 - 1 else [])
    },
    key=lambda value: (value, type(value).__name__),
)


def test_between_any_two_numbers() -> None:
    """All ranges between great integers, of which some hold integers and no double."""
    events = [Event("S", {"a": value}) for value in _VALUES]
    exact = 0
    for low, high in product(_GREAT + _LESS, _GREAT + _LESS):
        for lower, upper in product((">", ">="), ("<", "<=")):
            node = Quantified("any", "a", And((Predicate(lower, low), Predicate(upper, high))))  # type: ignore[arg-type]
            exact += examine(node, events)
    assert exact > 10_000


_LAST: Final = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize("moment", [EPOCH, trees.DATES[1], _LAST - timedelta(seconds=1)])
def test_between_any_two_dates(moment: datetime) -> None:
    """Microseconds of late dates are integers past 2**53."""
    near = [moment + timedelta(microseconds=each) for each in (-33, -32, -1, 0, 1, 2, 31, 32, 33)]
    events = [Event("S", {"a": value}) for value in near]
    for low, high in product(near, near):
        for lower, upper in product((">", ">="), ("<", "<=")):
            examine(Quantified("any", "a", And((Predicate(lower, low), Predicate(upper, high)))), events)  # type: ignore[arg-type]
    for sign, operand in product(("==", "!=", "<", "<=", ">", ">="), near):
        examine(trees.question("a", sign, operand), events)


def test_values_of_no_kind_are_there_and_nothing_else() -> None:
    rng = random.Random(3)
    odd = [math.nan, None, datetime(2026, 11, 21), [1], 2**53, "x", True]  # a list in a list, too
    exact = 0
    for _ in range(1_500):
        node = trees.random_node(rng, depth=2, names="ab")
        values = [rng.choice(odd) for _ in "ab"]
        exact += examine(node, [Event("S", dict(zip("ab", values, strict=True))), Event("S", {"a": values})])
    assert exact > 1_000


_RANGES: Final[list[tuple[Any, ...]]] = [*zip(("==", "!=", "<", "<=", ">", ">=")), *product((">", ">="), ("<", "<="))]


@pytest.mark.parametrize("signs", _RANGES, ids="".join)
def test_numbers_that_are_no_doubles_compare_exactly(signs: tuple[Any, ...]) -> None:
    """An end that is a double parts the integers, and the dates, that lie between doubles on either side of it."""
    ends = [2.0**53 + step for step in (-2, -1, 0, 2, 4, 6)] + [2.0**62, -(2.0**53), -(2.0**53) - 2]
    several = [2**53 + step for step in range(-4, 9)] + [2**62 + step for step in (-513, -512, -1, 0, 1, 513)]
    values: list[Any] = [*several, *map(float, several), *(-each for each in several), INF, -INF, 0.5]
    told = 0
    for operands in product(ends, repeat=len(signs)):
        parts = tuple(Predicate(sign, end) for sign, end in zip(signs, operands, strict=True))
        node = Quantified("any", "a", parts[0] if len(parts) == 1 else And(parts))
        found = rows_of(node)
        check_form(found)
        assert found.is_exact or len(signs) == 2
        told += found.is_exact
        assert all(agrees(node, found, Event("S", {"a": value})) is found.is_exact for value in values)
        assert all(agrees(node, found, Event("S", {"a": [value, 1]})) is found.is_exact for value in values)
    assert told > len(ends) / 2


# The form of rows ----------------------------------------------------------------------------------------------------

_TEN: Final = 1_795_255_200_000_000.0
"""2026-11-21T10:00:00Z in microseconds."""


def span(name: str, low: float, high: float, opens: int = 0) -> Clause:
    return [(name, NUMBER, low, high, opens)]


def words(name: str, *texts: str) -> Clause:
    return [(name, WORD, text, text) for text in texts]


PLAIN: Final[list[tuple[str, list[list[Clause]]]]] = [
    ("", [[]]),
    ("a == 1", [[span("a", 1.0, 1.0)]]),
    ("a > 1", [[span("a", above(1.0), INF, OPEN_LOW)]]),
    ("a >= 1", [[span("a", 1.0, INF)]]),
    ("a < 1.5", [[span("a", -INF, below(1.5), OPEN_HIGH)]]),
    ("a <= 1.5", [[span("a", -INF, 1.5)]]),
    ("a != 1", [[span("a", -INF, below(1.0), OPEN_HIGH) + span("a", above(1.0), INF, OPEN_LOW)]]),
    ("a > 0 and a <= 3", [[span("a", above(0.0), 3.0, OPEN_LOW)]]),
    ("a >= 1 and a >= 2 and a <= 3", [[span("a", 2.0, 3.0)]]),
    ("any a >= 5 and any a <= 3", [[span("a", 5.0, INF), span("a", -INF, 3.0)]]),
    ("a in (1, 2)", [[span("a", 1.0, 1.0) + span("a", 2.0, 2.0)]]),
    ("a >= 2026-11-21T10:00:00Z", [[[("a", DATE, _TEN, INF, 0)]]]),
    ("a > 2026-11-21T10:00:00Z", [[[("a", DATE, above(_TEN), INF, OPEN_LOW)]]]),
    ("a == true", [[[("a", BOOLEAN, 1.0, 1.0, 0)]]]),
    ("a == x", [[words("a", "x")]]),
    ("a != x", [[[("a", WORD, ("x",), None)]]]),
    ("a in (x, y)", [[words("a", "x", "y")]]),
    ("a prefix xy", [[[("a", ORDER, "xy", "xz", False, True)]]]),
    ("a prefix '\U0010ffff'", [[[("a", ORDER, "\U0010ffff", None, False, False)]]]),
    ("a < x", [[[("a", ORDER, None, "x", False, True)]]]),
    ("a <= x", [[[("a", ORDER, None, "x", False, False)]]]),
    ("a > x", [[[("a", ORDER, "x", None, True, False)]]]),
    ("a >= x", [[[("a", ORDER, "x", None, False, False)]]]),
    ("exists a", [[[("a", PRESENCE, PRESENT, EMPTY)]]]),
    ("not exists a", [[[("a", PRESENCE, MISSING, MISSING)]]]),
    ("a == x and b >= 2", [[words("a", "x"), span("b", 2.0, INF)]]),
    ("a == x or b >= 2", [[words("a", "x")], [span("b", 2.0, INF)]]),
    ("a == x or a == y", [[words("a", "x", "y")]]),
    ("a == x or a > y", [[words("a", "x")], [[("a", ORDER, "y", None, True, False)]]]),
    (
        "(a == x or b >= 2) and c == y",
        [[words("c", "y"), words("a", "x")], [words("c", "y"), span("b", 2.0, INF)]],
    ),
]


@pytest.mark.parametrize(("text", "rows"), PLAIN, ids=[text or "blank" for text, _ in PLAIN])
def test_comparisons_are_read_off(text: str, rows: list[list[Clause]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module, "normal_form")
    assert rows_of(parse(text).root) == FilterRows(rows, True, True)


@pytest.mark.parametrize(
    ("text", "rows", "is_exact", "is_exact_on_lists"),
    [
        ("not a >= 1", [[[("a", PRESENCE, EMPTY, EMPTY)]], [span("a", -INF, below(1.0), OPEN_HIGH)]], True, False),
        ("not a == x", [[[("a", PRESENCE, EMPTY, EMPTY)]], [[("a", WORD, ("x",), None)]]], True, False),
        ("any a (not in (x, y))", [[[("a", WORD, ("x", "y"), None)]]], True, True),
        ("a prefix ''", [[[("a", WORD, (), None)]]], True, True),
        ("a != true", [[[("a", BOOLEAN, 0.0, 0.0, 0)]]], True, True),
        ("a in (true, false)", [[[("a", BOOLEAN, 1.0, 1.0, 0), ("a", BOOLEAN, 0.0, 0.0, 0)]]], True, True),
        ("any a (not != true)", [[[("a", BOOLEAN, 1.0, 1.0, 0)]]], True, True),
        ("any a (prefix x or == y)", [[[("a", ORDER, "x", "y", False, False)]]], True, True),
        ("a in (1, x)", [[span("a", 1.0, 1.0)], [words("a", "x")]], True, True),
        ("a > 1 and a < 1", [], True, True),
        ("a > 1 and a < 2026-11-21T10:00:00Z", [], True, True),
        (
            "a >= 1 and a != 3",
            [[span("a", 1.0, below(3.0), OPEN_HIGH) + span("a", above(3.0), INF, OPEN_LOW)]],
            True,
            True,
        ),
        ("a == ''", [[words("a", "")]], True, True),
        ("a suffix x and b == 1", [[[("a", WORD, (), None)], span("b", 1.0, 1.0)]], False, False),
        ("a suffix x and a prefix y", [[[("a", ORDER, "y", "z", False, True)]]], False, False),
        ("a == 9007199254740993", [[span("a", 2.0**53, 2.0**53 + 2)]], False, False),
        ("a > 9007199254740993", [[span("a", 2.0**53, INF)]], False, False),
        ("a > 9007199254740992", [[span("a", 2.0**53 + 2, INF, OPEN_LOW)]], True, True),
        ("a > 9007199254740992 and a < 9007199254740994", [[span("a", 2.0**53, 2.0**53 + 2)]], False, False),
        ("all a >= 3 and all a <= 5", [[[("a", PRESENCE, EMPTY, EMPTY)]], [span("a", 3.0, 5.0)]], True, False),
    ],
)
def test_others_go_by_their_normal_form(
    text: str, rows: list[list[Clause]], is_exact: bool, is_exact_on_lists: bool
) -> None:
    assert rows_of(parse(text).root) == FilterRows(rows, is_exact, is_exact_on_lists)


def any_of(*names: str) -> Node:
    return Or(tuple(trees.question(name, "==", 1) for name in names))


def test_few_products_are_rows_and_many_go_by_the_normal_form(monkeypatch: pytest.MonkeyPatch) -> None:
    sixteen = And((any_of(*"ab"), any_of(*"cd"), any_of(*"efgh")))
    assert len(rows_of(sixteen).rows) == ROWS_MAX == 16
    assert len(rows_of(any_of(*"abcdefghijklmnop")).rows) == ROWS_MAX
    asked: list[Node] = []

    def noted(root: Node, conjunctions_max: int, work: WorkBudget) -> NormalForm:
        asked.append(root)
        return normal_form(root, conjunctions_max, work)

    monkeypatch.setattr(module, "normal_form", noted)
    for node in (And((*sixteen.operands, any_of(*"ij"))), any_of(*"abcdefghijklmnopq")):
        found = rows_of(node)
        assert found.is_exact
        assert len(found.rows) > ROWS_MAX
    assert len(asked) == 2


def test_a_clause_of_several_rows_is_not_changed_in_one_of_them() -> None:
    """Rows of a product share clauses; joining the predicates of one leaves the others unchanged."""
    node = Or((And((any_of("a", "b"), Or((And(()), trees.question("c", "==", 1))))), trees.question("a", "==", 2)))
    assert [span("a", 1.0, 1.0), span("c", 1.0, 1.0)] in rows_of(node).rows
    examine(node, [Event("S", {"a": 2, "c": 1})])


def test_kinds_are_split_where_that_is_cheap() -> None:
    mixed = [Quantified("any", name, Predicate("in", (1, "x"))) for name in "abc"]
    for several in (mixed[:2], mixed):
        found = rows_of(And(tuple(several)))
        assert len(found.rows) == SPLIT_MAX == 4
        assert found.is_exact_on_lists
        check_form(found)


def test_requirements_of_a_residual_are_indexed() -> None:
    def needing(node: Node) -> Residual:
        return Residual("test", trees.IsEven("n"), node)

    both: Node = And((needing(trees.question("n", ">=", 2)), Exists("b")))
    there: Clause = [("b", PRESENCE, PRESENT, EMPTY)]
    assert rows_of(both) == FilterRows([[there, span("n", 2.0, INF)]], False, False)
    assert rows_of(Not(needing(Exists("n")))) == FilterRows([[]], False, False)
    assert rows_of(needing(Or(()))) == FilterRows([], False, False)
    eight: And[Node] = And((needing(any_of(*"ab")), needing(any_of(*"cd")), needing(any_of(*"ef"))))
    assert len(rows_of(eight).rows) == NEEDED_MAX == 8
    assert len(rows_of(And((*eight.operands, needing(any_of(*"gh"))))).rows) == NEEDED_MAX


def test_a_question_that_any_value_answers_is_left_to_evaluation() -> None:
    unasked: list[Node] = [Quantified("any", "a", And(())), Not(Quantified("all", "a", Predicate("in", ())))]
    for node in unasked:
        assert rows_of(node) == FilterRows([[]], False, False)
    assert rows_of(Quantified("any", "a", Predicate("in", ()))) == FilterRows([], True, True)


def test_that_all_items_are_of_some_kind_is_more_than_that_they_exist() -> None:
    parts = [Predicate("<", 0), Predicate(">=", 0), Predicate("prefix", ""), Predicate("in", (True, False))]
    node = Quantified("all", "a", Or((*parts, Predicate("<", EPOCH), Predicate(">=", EPOCH))))
    assert rows_of(node) == FilterRows([[[("a", PRESENCE, PRESENT, EMPTY)]]], False, False)
    examine(node, [Event("S", {"a": math.nan})])


_NAIVE: Final = datetime(2026, 11, 21)
_NEVER: Final = [(">", INF), ("<", -INF), ("<", ""), ("==", math.nan), ("<", True), ("<", _NAIVE), ("==", (1, 2))]


@pytest.mark.parametrize(("sign", "operand"), _NEVER)
def test_a_filter_that_is_never_true_has_no_rows(sign: str, operand: Any) -> None:
    assert rows_of(trees.question("a", sign, operand)) == FilterRows([], True, True)


# Bounds of the cost of one filter -------------------------------------------------------------------------------------


def joined(join: str, *parts: str) -> str:
    return join.join(parts)


LARGE = {
    "conjunction": joined(" and ", *(f"a{i} == {i}" for i in range(CLAUSES_MAX + 1))),
    "of alternatives": joined(" and ", *(f"(a{i} == {i} or b{i} < {i})" for i in range(130))),
    "alternatives": joined(" or ", *(f"a{i} == {i}" for i in range(260))),
    "negated": f"not ({joined(' or ', *(f'a{i} == {i}' for i in range(260)))})",
    "patterns": joined(" and ", *(f'(a contains "x{i}" or a suffix "y{i}" or b contains "z{i}")' for i in range(21))),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_filter_takes_few_rows_and_pieces_and_is_evaluated(name: str) -> None:
    rows, is_exact, _ = rows_of(parse(LARGE[name]).root)
    assert not is_exact
    assert len(rows) <= NORMALISED_ROWS_MAX
    assert sum(len(clause) for row in rows for clause in row) <= PIECES_MAX


def test_the_row_of_a_large_conjunction_asks_what_all_of_it_needs() -> None:
    names = {clause[0][0] for row in rows_of(parse(LARGE["conjunction"]).root).rows for clause in row}
    assert names == {f"a{i}" for i in range(CLAUSES_NEEDED_MAX)}


def test_a_filter_that_one_row_finds_always_has_no_others() -> None:
    always_looked_at = Residual("cesql", cesql.Condition(LiteralValue(True)))
    assert rows_of(Or((parse("a == 1 and b == 2").root, always_looked_at))) == FilterRows([[]], False, False)


def test_a_long_list_of_values_is_looked_up() -> None:
    rows, is_exact, _ = rows_of(parse(f"a in ({', '.join(map(str, range(1_000)))})").root)
    assert is_exact
    assert [len(clause) for row in rows for clause in row] == [1_000]


@pytest.mark.parametrize("name", sorted(set(LARGE) - {"conjunction"}))
def test_no_normal_form_is_made_of_many_questions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Node] = []

    def noted(root: Node, conjunctions_max: int, work: WorkBudget) -> NormalForm:
        asked.append(root)
        return normal_form(root, conjunctions_max, work)

    monkeypatch.setattr(module, "normal_form", noted)
    assert not rows_of(parse(LARGE[name]).root).is_exact
    assert asked == []
