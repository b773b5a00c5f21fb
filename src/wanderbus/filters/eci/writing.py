"""Writer from a tree to its text: every string quoted, no redundant parentheses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from wanderbus.filters.ast import And, Clause, Exists, Node, Not, Operand, Or, Predicate, Quantified, Residual
from wanderbus.filters.eci.words import KEYWORDS, WORD, quoted
from wanderbus.literals import to_text

_WORD: Final = re.compile(WORD)

_Write = Callable[[Any], str]


def write(node: Node) -> str:
    """Return the canonical text of ``node``, which parses to the same tree.

    That holds for every tree whose operands are of a kind that their operators have
    (:data:`wanderbus.filters.evaluate.OF_KIND`), within the limits on length and depth.
    """
    return _boolean(node, _question)


def _boolean(node: Any, leaf: _Write) -> str:
    """Return the text of a node or of a clause: they combine in the same way and differ in their leaves."""
    match node:
        case And(operands=()):
            return "everything"
        case Or(operands=()):
            return "nothing"
        case Not(operand=operand) if not _is_simple(node):
            return f"not {_within(operand, Not, leaf)}"
        case And(operands=operands) if len(operands) > 1:
            return " and ".join(_within(operand, And, leaf) for operand in _apart(operands))
        case Or(operands=operands) if len(operands) > 1:
            return " or ".join(_within(operand, Or, leaf) for operand in operands)
        case And() | Or():
            return _as_it_stands(node, leaf)
        case _:
            return leaf(node)


def _within(node: Any, outer: type, leaf: _Write) -> str:
    """Return the text of an operand of ``outer``, in parentheses if the reader would otherwise merge or split it."""
    if isinstance(node, And | Or) and len(node.operands) > 1:
        if isinstance(node, outer):
            return _as_it_stands(node, leaf)
        needs_parentheses = outer is Not or isinstance(node, Or)
    else:
        needs_parentheses = outer is Not and _is_grouped(node)
    text = _boolean(node, leaf)
    return f"({text})" if needs_parentheses else text


def _as_it_stands(node: And[Any] | Or[Any], leaf: _Write) -> str:
    operator = "and" if isinstance(node, And) else "or"
    return f"{operator}({', '.join(_boolean(operand, leaf) for operand in node.operands)})"


class _Apart:
    """A question that must not become one clause with another of the same `and`."""

    def __init__(self, question: Quantified) -> None:
        self.question = question


def _apart(operands: Sequence[Any]) -> list[Any]:
    """Return ``operands`` with marks on those that would merge into one clause if they were written without ``any``.

    An operand with several tests stays without it: in parentheses it could be nested deeper than the original text.
    """
    count = Counter(each.attribute for each in operands if _is_bare(each))
    kept = {each.attribute: place for place, each in reversed([*enumerate(operands)]) if _is_grouped(each)}
    return [
        _Apart(each) if _is_bare(each) and count[each.attribute] > 1 and kept.get(each.attribute) != place else each
        for place, each in enumerate(operands)
    ]


def _is_simple(clause: object) -> bool:
    """Return whether a clause is a single test."""
    match clause:
        case Predicate() | Not(operand=Predicate(operator="in")):
            return True
        case _:
            return False


def _is_grouped(node: object) -> bool:
    """Return whether a question is several tests of one item, written as an `and` of them."""
    match node:
        case Quantified(quantifier="any", clause=And(operands=operands)):
            return len(operands) > 1 and all(map(_is_simple, operands))
        case _:
            return False


def _is_bare(node: object) -> bool:
    """Return whether a question is written without ``any``."""
    return isinstance(node, Quantified) and (
        _is_grouped(node) or (node.quantifier == "any" and _is_simple(node.clause))
    )


def _question(node: Node | _Apart) -> str:
    match node:
        case _Apart(question=question):
            return _with_quantifier(question)
        case Quantified(attribute=attribute, clause=And(operands=tests)) if _is_grouped(node):
            return " and ".join(f"{_name(attribute)} {_test(each)}" for each in tests)
        case Quantified(attribute=attribute, clause=clause) if _is_bare(node):
            return f"{_name(attribute)} {_test(clause)}"
        case Quantified():
            return _with_quantifier(node)
        case Exists(attribute=attribute):
            return f"exists {_name(attribute)}"
        case Residual(language=language, expression=expression):
            return f"{language} {quoted(str(expression), chr(34))}"
        case _:
            raise AssertionError(node)


def _with_quantifier(node: Quantified) -> str:
    clause = _test(node.clause) if _is_simple(node.clause) else f"({_boolean(node.clause, _test)})"
    return f"{node.quantifier} {_name(node.attribute)} {clause}"


def _test(clause: Clause) -> str:
    match clause:
        case Not(operand=operand):
            return f"not {_test(operand)}"
        case Predicate(operator=sign, operand=tuple() as operands):
            return f"{sign} ({', '.join(map(_literal, operands))})"
        case Predicate(operator=sign, operand=operand):
            assert not isinstance(operand, tuple)
            return f"{sign} {_literal(operand)}"
        case _:
            raise AssertionError(clause)


def _name(attribute: str) -> str:
    plain = _WORD.fullmatch(attribute) and attribute.lower() not in KEYWORDS
    return attribute if plain else quoted(attribute, "`")


def _literal(value: Operand) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value, '"')
        case datetime():
            return _date(value)
        case float() if math.isinf(value):
            return "+inf" if value > 0 else "-inf"
        case _:
            return repr(value)


def _date(value: datetime) -> str:
    try:
        return value.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
    except OverflowError:  # the first or the last possible day, in its own time zone
        return to_text(value)
