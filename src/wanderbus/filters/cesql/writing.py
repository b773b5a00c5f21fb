"""Writer from CESQL tree to text: keywords in upper case, no redundant parentheses."""

from __future__ import annotations

from typing import Final

from wanderbus.filters.cesql.reading import unquoted
from wanderbus.filters.cesql.tree import (
    AttributeExists,
    AttributeValue,
    Chain,
    Expression,
    FunctionCall,
    In,
    Like,
    LiteralValue,
    Unary,
    Value,
    precedence,
)

_SUFFIXED: Final = 5
_PREFIXED: Final = 6
_CLOSED: Final = 7


def write(node: Expression) -> str:
    """Return the canonical text of ``node``, which reads to the same tree."""
    match node:
        case LiteralValue(value=value):
            return _literal(value)
        case AttributeValue(name=name):
            return name
        case AttributeExists(name=name):
            return f"EXISTS {name}"
        case Unary(operator="NOT", operand=operand):
            return f"NOT {_within(operand, _PREFIXED)}"
        case Unary(operand=operand):
            text = _within(operand, _PREFIXED)
            return f"- {text}" if text[0].isdigit() else f"-{text}"
        case Like(operand=operand, pattern=pattern, negated=negated):
            return f"{_within(operand, _SUFFIXED)} {'NOT ' * negated}LIKE {_literal(pattern)}"
        case In(operand=operand, items=items, negated=negated):
            return f"{_within(operand, _SUFFIXED)} {'NOT ' * negated}IN ({', '.join(map(write, items))})"
        case FunctionCall(name=name, arguments=arguments):
            return f"{name}({', '.join(map(write, arguments))})"
        case Chain(first=first, steps=steps):
            level = precedence(node)
            rest = (f" {operator} {_within(operand, level + 1)}" for operator, operand in steps)
            return _within(first, level) + "".join(rest)


def _within(node: Expression, loosest: int) -> str:
    """Return the text of ``node``, in parentheses if it binds less tightly than ``loosest``."""
    text = write(node)
    return text if _tightness(node) >= loosest else f"({text})"


def _tightness(node: Expression) -> int:
    match node:
        case Chain():
            return precedence(node)
        case Like() | In():
            return _SUFFIXED
        case Unary():
            return _PREFIXED
        case _:
            return _CLOSED


def _literal(value: Value) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
    in_single = "'" + value.replace("'", "\\'") + "'"
    # A backslash before a quote can only be written in the other kind of quotes.
    return in_single if unquoted(in_single) == value else '"' + value.replace('"', '\\"') + '"'
