"""Filters and events for tests: hypothesis strategies, and plain functions of a ``random.Random`` for the long runs.

``nodes()`` and ``random_node(rng)`` build every kind of node, nested and empty ones too, from few names and values,
so that predicates often concern the same attribute. Operands are valid for their operator. ``events()`` and
``random_event(rng)`` have missing attributes, lists (empty, mixed), every kind, NaN and infinity.
``random_event(rng, node)`` draws its values from the operands of the node and from just beside them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from wanderbus.event import Event
from wanderbus.filters.ast import (
    And,
    Clause,
    Exists,
    Node,
    Not,
    Operand,
    Or,
    Predicate,
    Quantified,
    Residual,
)
from wanderbus.filters.evaluate import OF_KIND, kind_of

NAMES: Final = ("a", "b", "Price", "x-y.z:1", "ação", "any", "my `name`\\")
"""Plain ones, one that is a keyword, and one that needs quotes and escapes."""

INTEGERS: Final = (0, 1, 2, 3, -1, 10, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS: Final = (0.5, 1.0, -2.0, -0.0, 1e16, 2.0**53, 5e-324, -1.5e300, math.inf, -math.inf)
STRINGS: Final = ("", "x", "xy", "xyx", "yx", "PETR4", "PETR", "and", "a b", "\"\\'\n\x00\u2028", "é", "\U0010ffff")
DATES: Final = (
    datetime(2026, 11, 21, tzinfo=UTC),
    datetime(2026, 11, 21, 10, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(hours=2))),
    datetime(2026, 11, 21, 10, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone(-timedelta(hours=3, minutes=30))),
)
OPERANDS: Final[Mapping[str, Sequence[Operand]]] = {
    "number": INTEGERS + FLOATS,
    "string": STRINGS,
    "boolean": (True, False),
    "date": DATES,
}
"""Few per kind, so that two draws often agree."""

_ANY_VALUE: Final = (*INTEGERS[:6], *FLOATS[:3], *STRINGS[:6], *DATES[:2], True, False, math.nan, math.inf, -(2**63))


class IsEven(msgspec.Struct, frozen=True):
    """A predicate that the common tree cannot express, for :class:`Residual`: the integer of ``attribute`` is even."""

    attribute: str

    def holds(self, attributes: Mapping[str, Any]) -> bool | None:
        """Return whether it is even, None where it is no integer."""
        value = attributes.get(self.attribute)
        return value % 2 == 0 if isinstance(value, int) and not isinstance(value, bool) else None

    def __str__(self) -> str:
        return f"even({self.attribute})"


def question(name: str, sign: Any, operand: Any) -> Node:
    """Return ``name sign operand``, as an expression without quantifier has it."""
    return Quantified("any", name, Predicate(sign, operand))


# Of a random.Random --------------------------------------------------------------------------------------------------


def random_predicate(rng: random.Random) -> Predicate:
    """Return an atomic predicate whose operand is valid for its operator."""
    kind = rng.choice(("number", "number", "string", "string", "boolean", "date"))
    sign: Any = rng.choice(sorted(OF_KIND[kind]))
    if sign == "in":
        other = rng.choice(sorted(OPERANDS))
        pool = (*OPERANDS[kind], *OPERANDS[other]) if rng.random() < 0.2 else OPERANDS[kind]
        return Predicate("in", tuple(rng.choice(pool) for _ in range(rng.choice((0, 1, 2, 2, 3)))))
    return Predicate(sign, rng.choice(OPERANDS[kind]))


def random_clause(rng: random.Random, depth: int = 2) -> Clause:
    """Return a condition on one value, nested at most ``depth`` deep."""
    shape = rng.random() if depth > 0 else 0.0
    if shape < 0.5:
        return random_predicate(rng)
    if shape < 0.65:
        return Not(random_clause(rng, depth - 1))
    several = tuple(random_clause(rng, depth - 1) for _ in range(rng.choice((0, 1, 2, 2, 2, 3))))
    return And(several) if shape < 0.83 else Or(several)


def random_node(
    rng: random.Random, depth: int = 3, names: Sequence[str] = NAMES[:5], *, residuals: bool = False
) -> Node:
    """Return a filter nested at most ``depth`` deep; with ``residuals`` it may contain :class:`IsEven`."""
    shape = rng.random() if depth > 0 else rng.random() * 0.5
    name = rng.choice(names)
    if shape < 0.06:
        return Exists(name)
    if residuals and shape < 0.12:
        return Residual("test", IsEven(name), Exists(name))
    if shape < 0.3:
        return Quantified("any", name, random_predicate(rng))
    if shape < 0.5:
        return Quantified(rng.choice(("any", "all")), name, random_clause(rng))
    if shape < 0.62:
        return Not(random_node(rng, depth - 1, names, residuals=residuals))
    count = rng.choice((0, 1, 2, 2, 2, 3, 3, 4))
    several = tuple(random_node(rng, depth - 1, names, residuals=residuals) for _ in range(count))
    return And(several) if shape < 0.82 else Or(several)


def random_event(rng: random.Random, node: Node | None = None, names: Sequence[str] = NAMES[:5]) -> Event:
    """Return an event; with ``node``, one that has the attributes it tests."""
    asked: dict[str, list[Any]] = {name: [] for name in names} if node is None else {}
    for name, operand in () if node is None else _asked(node):
        asked.setdefault(name, []).extend(() if operand is None else _around(operand))
    attributes: dict[str, Any] = {}
    for name, near in asked.items():
        chance = rng.random()
        if chance < 0.15:
            continue
        pool = near if near and rng.random() < 0.85 else _ANY_VALUE
        items = [rng.choice(pool if rng.random() < 0.9 else _ANY_VALUE) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        attributes[name] = items if chance < 0.4 else rng.choice(pool)
    return Event("S", attributes)


def _asked(node: Any) -> Iterator[tuple[str, Operand | None]]:
    """Give every attribute of ``node`` with every operand that it is compared with."""
    match node:
        case Quantified(attribute=attribute, clause=clause):
            yield attribute, None
            for operand in operands_of(clause):
                yield attribute, operand
        case Exists(attribute=attribute):
            yield attribute, None
        case Residual(expression=IsEven(attribute=attribute)):
            yield from ((attribute, 2), (attribute, 3))
        case Not(operand=operand):
            yield from _asked(operand)
        case And(operands=operands) | Or(operands=operands):
            for each in operands:
                yield from _asked(each)


def operands_of(clause: Clause) -> Iterator[Operand]:
    """Give every operand that ``clause`` compares with."""
    match clause:
        case Predicate(operand=tuple() as several):
            yield from several
        case Predicate(operand=operand):
            assert not isinstance(operand, tuple)
            yield operand
        case Not(operand=inner):
            yield from operands_of(inner)
        case And(operands=clauses) | Or(operands=clauses):
            for each in clauses:
                yield from operands_of(each)


def _around(operand: Operand) -> list[Any]:
    """Return ``operand`` and its nearest neighbours."""
    match operand:
        case bool():
            return [operand, not operand]
        case int():
            near = [each for each in (operand, operand - 1, operand + 1) if -(2**63) <= each < 2**63]
            return [*near, float(operand)]
        case float():
            beside = [operand, math.nextafter(operand, math.inf), math.nextafter(operand, -math.inf)]
            return [*beside, int(operand)] if abs(operand) < 2**63 else beside
        case str():
            return [operand, operand + "x", "x" + operand, operand[:-1], operand + "\x00"]
        case datetime():
            steps = [timedelta(microseconds=each) for each in (0, 1, -1)]
            bounds = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
            return [operand + step for step in steps if bounds[0] + abs(step) <= operand <= bounds[1] - abs(step)] or [
                operand
            ]


# Of hypothesis -------------------------------------------------------------------------------------------------------


def operands(kind: str) -> st.SearchStrategy[Any]:
    """Return the strategy of operands of ``kind``: the few of :data:`OPERANDS`, and any."""
    few = st.sampled_from(OPERANDS[kind])
    zones = st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30)), timezone(timedelta(seconds=3_601))])
    anything: dict[str, st.SearchStrategy[Any]] = {
        "number": st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        "boolean": st.booleans(),
        "date": st.datetimes(timezones=zones),
    }
    return few | anything[kind]


def predicates() -> st.SearchStrategy[Predicate]:
    """Return the strategy of atomic predicates whose operand is valid for their operator."""

    def of_kind(kind: str) -> st.SearchStrategy[Predicate]:
        signs: Any = sorted(OF_KIND[kind] - {"in"})
        return st.builds(Predicate, st.sampled_from(signs), operands(kind))

    kinds = sorted(OPERANDS)
    listed = st.lists(st.sampled_from(kinds).flatmap(operands), max_size=3).map(tuple)
    return st.sampled_from(kinds).flatmap(of_kind) | st.builds(Predicate, st.just("in"), listed)


def _grown(leaves: st.SearchStrategy[Any], leaves_max: int) -> st.SearchStrategy[Any]:
    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inner, max_size=3).map(tuple)
        return st.builds(Not, inner) | st.builds(And, several) | st.builds(Or, several)

    return st.recursive(leaves, grow, max_leaves=leaves_max)


def clauses() -> st.SearchStrategy[Clause]:
    """Return the strategy of conditions on one value."""
    return _grown(predicates(), 4)


def nodes(names: Sequence[str] = NAMES, *, residuals: bool = False) -> st.SearchStrategy[Node]:
    """Return the strategy of filters; with ``residuals`` they may contain :class:`IsEven`."""
    name = st.sampled_from(names)
    leaves: st.SearchStrategy[Any] = (
        st.builds(Quantified, st.just("any"), name, predicates())
        | st.builds(Quantified, st.sampled_from(["any", "all"]), name, clauses())
        | st.builds(Exists, name)
    )
    if residuals:
        leaves = leaves | name.map(lambda each: Residual("test", IsEven(each), Exists(each)))
    return _grown(leaves, 6)


def events(names: Sequence[str] = NAMES) -> st.SearchStrategy[Event]:
    """Return the strategy of events."""
    scalars = st.sampled_from(_ANY_VALUE) | st.sampled_from(sorted(OPERANDS)).flatmap(operands)
    values = scalars | st.lists(scalars, max_size=3)
    return st.builds(Event, st.just("S"), st.dictionaries(st.sampled_from(names), values, max_size=5))


assert all(kind_of(each) == kind for kind, pool in OPERANDS.items() for each in pool)
