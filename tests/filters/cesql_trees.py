"""Random CESQL expressions and attributes, drawn from a ``random.Random`` for tests and long runs.

Names and values are few, so that predicates often concern the same attribute. Many expressions are typical of people;
the others use the whole language.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any, Final

from wanderbus.filters.cesql.tree import (
    PRECEDENCE,
    AttributeExists,
    AttributeValue,
    Chain,
    Expression,
    FunctionCall,
    In,
    Like,
    LiteralValue,
    Unary,
    chain,
)

NAMES: Final = ("a", "b", "c", "Price", "id", "Subject", "subject", "2x")
TEXTS: Final = (
    "", "x", "abc", "abcabc", "bc", "5", "05", "+1", "-1", "true", "TRUE", "inf", "tr", "2026", "a'\"", "%", "é",
    "a\nb", "1.5", "[1]",
)  # fmt: skip
NUMBERS: Final = (0, 1, 2, 5, -1, 2**31 - 1, -(2**31))
PATTERNS: Final = (
    "abc%", "%bc", "%b%", "a_c", "abc", "%", "", "a%c", "ab%bc", "t%", "5%", "%5",
    r"\%", r"a\_%", "%e", "_%", "%a%c%", "tr_e", "é%", "-%", "%Z",
)  # fmt: skip
VALUES: Final[tuple[Any, ...]] = (
    *TEXTS, *NUMBERS, 2**31, 2**53, True, False, 0.5, 5.0, 1e300, -2.5, float("inf"), "a", "PETR4",
    datetime(2026, 11, 21, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC),
)  # fmt: skip
CALLS: Final = (
    ("LENGTH", 1), ("UPPER", 1), ("INT", 1), ("BOOL", 1), ("STRING", 1), ("ABS", 1), ("CONCAT", 0), ("CONCAT", 2),
    ("CONCAT_WS", 3), ("TRIM", 1), ("LEFT", 2), ("RIGHT", 2), ("SUBSTRING", 2), ("SUBSTRING", 3), ("NO_SUCH", 1),
)  # fmt: skip


def random_expression(rng: random.Random, depth: int = 3) -> Expression:
    """Return an expression; half of them are ANDs, ORs and NOTs of simple questions."""
    return _question(rng, depth) if rng.random() < 0.5 else _anything(rng, depth)


def _question(rng: random.Random, depth: int) -> Expression:
    if depth and rng.random() < 0.6:
        match rng.randrange(4):
            case 0:
                return Unary("NOT", _question(rng, depth - 1))
            case 1:
                return _logic(rng, depth, ("AND", "OR"))
            case _:
                return _logic(rng, depth, (rng.choice(("AND", "OR")),))
    if rng.random() < 0.1:
        return _anything(rng, min(depth, 1))
    attribute = AttributeValue(rng.choice(NAMES))
    match rng.randrange(6):
        case 0:
            return AttributeExists(attribute.name)
        case 1:
            return Like(attribute, rng.choice(PATTERNS), rng.random() < 0.3)
        case 2:
            constants = tuple(_constant(rng) for _ in range(rng.randint(1, 3)))
            return In(attribute, constants, rng.random() < 0.3)
        case 3:
            return Chain(attribute, ((rng.choice(("=", "!=")), LiteralValue(rng.choice(TEXTS))),))
        case 4:
            return Chain(attribute, ((rng.choice(("=", "!=", "<", "<=", ">", ">=")), _constant(rng)),))
        case _:
            return LiteralValue(rng.random() < 0.5)


def _logic(rng: random.Random, depth: int, signs: tuple[str, ...]) -> Expression:
    steps = [(rng.choice(signs), _question(rng, depth - 1)) for _ in range(rng.randint(1, 3))]
    return chain(_question(rng, depth - 1), steps)


def _anything(rng: random.Random, depth: int) -> Expression:
    if not depth:
        return _constant(rng) if rng.random() < 0.5 else AttributeValue(rng.choice(NAMES))
    match rng.randrange(6):
        case 0:
            return Unary(rng.choice(("NOT", "-")), _anything(rng, depth - 1))
        case 1:
            return Like(_anything(rng, depth - 1), rng.choice(PATTERNS), rng.random() < 0.5)
        case 2:
            items = tuple(_anything(rng, depth - 1) for _ in range(rng.randint(1, 3)))
            return In(_anything(rng, depth - 1), items, rng.random() < 0.5)
        case 3:
            name, count = rng.choice(CALLS)
            return FunctionCall(name, tuple(_anything(rng, depth - 1) for _ in range(count)))
        case _:
            level = rng.randint(1, 4)
            signs = [sign for sign, own in PRECEDENCE.items() if own == level]
            steps = [(rng.choice(signs), _anything(rng, depth - 1)) for _ in range(rng.randint(1, 3))]
            return chain(_anything(rng, depth - 1), steps)


def _constant(rng: random.Random) -> LiteralValue:
    return LiteralValue(rng.choice((rng.choice(TEXTS), rng.choice(NUMBERS), rng.random() < 0.5)))


def random_attributes(rng: random.Random) -> dict[str, Any]:
    """Return attributes of an event that may be published, some of them lists."""
    return {name: _attribute(rng) for name in NAMES if rng.random() < 0.7}


def _attribute(rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return [rng.choice(VALUES) for _ in range(rng.randint(0, 3))]
    return rng.choice(VALUES)
