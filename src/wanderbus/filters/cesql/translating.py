"""Translation of CESQL to the common syntax tree: exact if possible, otherwise the necessary conditions of a match.

Three conditions on an event are made at once for every Boolean expression: it is **true**, it is **false**, and it is
**sound**, which means either of them, without an error. Each condition is exact or holds too often, never too rarely.
So ``NOT`` only swaps the first two, and there is never an unknown below a `Not`.

Casts keep conditions from being exact: ``a = '5'`` is also true for the integer 5, and ``a < 5`` for the text ``'4'``.
A text like ``'PETR4'`` is not a cast of anything else, so ``a = 'PETR4'`` is exact. Conditions assume events that
:func:`wanderbus.event.check_event` admits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from wanderbus.filters.ast import (
    EVERYTHING,
    NOTHING,
    And,
    Clause,
    Node,
    Not,
    Operator,
    Or,
    Predicate,
    Quantified,
    Quantifier,
)
from wanderbus.filters.ast import Exists as Present
from wanderbus.filters.cesql import casting, patterns
from wanderbus.filters.cesql.evaluating import type_of
from wanderbus.filters.cesql.tree import (
    AttributeExists,
    AttributeValue,
    Chain,
    Expression,
    In,
    Like,
    LiteralValue,
    Unary,
    Value,
    parts,
)

WEIGHT_MAX: Final = 256
"""Largest number of questions in one condition; a larger condition becomes inexact."""

GUARD_WEIGHT_MAX: Final = 32
"""Largest number of questions that guard an operand of AND or OR against the failure of an earlier operand."""

DEPTH_MAX: Final = 8
"""Deepest nesting of one condition; a deeper condition becomes inexact."""

PARTS_MAX: Final = 1_024
"""Largest number of parts, without constants, of a translated expression; a larger one is evaluated for every event."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEANS: Final = Predicate("in", (False, True))
_ANY_TEXT: Final = Predicate(">=", "")
_NO_TEXT: Final = (
    Predicate("<", 0), Predicate(">=", 0), _BOOLEANS, Predicate("<", _EPOCH), Predicate(">=", _EPOCH),
)  # fmt: skip
"""Tests of which every value that is not a text satisfies one."""

_CAST_TO_INTEGER: Final = (_ANY_TEXT, _BOOLEANS)
"""Tests of which every value that is not a number, and may be cast to an integer, satisfies one."""

_NUMERIC: Final = "+-0123456789"
_WORDS: Final = ("true", "false", "inf", "nan")
"""First characters of the casts of numbers, dates and booleans: a numeric character, or one of these."""

_CAST_CHARACTERS: Final = frozenset(_NUMERIC + ".:eTZ" + "".join(_WORDS))

_OF_INTEGERS: Final[Mapping[str, tuple[Operator, Operator]]] = {
    "=": ("==", "!="), "<": ("<", ">="), "<=": ("<=", ">"), ">": (">", "<="), ">=": (">=", "<"),
}  # fmt: skip
"""Tests of an integer where a comparison is true, and where it is false."""


class TranslatedCondition(NamedTuple):
    """``node`` holds wherever the condition does, and nowhere else if it is ``exact``."""

    node: Node
    exact: bool = True
    weight: int = 1
    """Number of questions."""

    depth: int = 1
    needs: frozenset[str] = frozenset()
    """Attributes that every event for which ``node`` holds has."""

    operands: tuple[TranslatedCondition, ...] = ()
    """Conditions of the operands of ``node``, if it is an `And` or an `Or`."""


class Meaning(NamedTuple):
    """Conditions under which an expression is true, is false, and is either."""

    true: TranslatedCondition
    false: TranslatedCondition
    sound: TranslatedCondition


_ALWAYS: Final = TranslatedCondition(EVERYTHING, weight=0)
_NEVER: Final = TranslatedCondition(NOTHING, weight=0)
_UNKNOWN: Final = TranslatedCondition(EVERYTHING, exact=False, weight=0)


def translate(root: Expression) -> TranslatedCondition:
    """Return the condition under which an event matches ``root``: it is the Boolean true, without an error."""
    if _is_large(root):
        return _UNKNOWN
    if isinstance(root, AttributeValue) and _single(root.name):
        return _question("any", root.name, Predicate("==", True), exact=False)
    return _meaning(root).true if type_of(root) is bool else _NEVER


def _is_large(root: Expression) -> bool:
    waiting, count = [root], 0
    while waiting and count <= PARTS_MAX:
        count += len(waiting)
        waiting = [part for node in waiting for part in parts(node) if not isinstance(part, LiteralValue)]
    return count > PARTS_MAX


def _meaning(node: Expression) -> Meaning:
    match node:
        case LiteralValue(value=bool() as value):
            return Meaning(_ALWAYS if value else _NEVER, _NEVER if value else _ALWAYS, _ALWAYS)
        case AttributeExists(name=name):
            if name.lower() in casting.REQUIRED:
                return Meaning(_ALWAYS, _NEVER, _ALWAYS)
            present = _present(name)
            return Meaning(present, TranslatedCondition(Not(present.node)), _ALWAYS)
        case Unary(operator="NOT", operand=operand) if type_of(operand) is bool:
            true, false, sound = _meaning(operand)
            return Meaning(false, true, sound)
        case Like(operand=AttributeValue(name=name), pattern=pattern, negated=negated) if _single(name):
            return _negated(_like(name, pattern), negated)
        case In(operand=AttributeValue(name=name), items=items, negated=negated) if _single(name):
            values = tuple(item.value for item in items if isinstance(item, LiteralValue))
            return _negated(_in(name, values), negated) if len(values) == len(items) else _perhaps(node)
        case Chain(
            first=AttributeValue(name=name),
            steps=((("=" | "!=" | "<" | "<=" | ">" | ">=") as sign, LiteralValue(value=value)),),
        ) if _single(name):
            return _compared(name, sign, value)
        case Chain(steps=steps) if all(sign in ("AND", "OR") for sign, _ in steps):
            return _logic(node)
        case _:
            return _perhaps(node)


def _negated(meaning: Meaning, negated: bool) -> Meaning:
    return Meaning(meaning.false, meaning.true, meaning.sound) if negated else meaning


def _logic(node: Chain) -> Meaning:
    """Return the meaning of ANDs and ORs: each run of the same operator is handled as a whole, from the left."""
    if sum(one != other for (one, _), (other, _) in pairwise(node.steps)) > DEPTH_MAX:
        return _perhaps(node)
    run, kind = [_meaning(node.first)], node.steps[0][0]
    for sign, operand in node.steps:
        if sign != kind:
            run, kind = [_run(kind, run)], sign
        run.append(_meaning(operand))
    return _run(kind, run)


def _run(kind: str, run: list[Meaning]) -> Meaning:
    """Return the meaning of ``run`` joined by AND; OR is the same with true and false swapped.

    An AND is false if some operand is false and those before it are sound: one of them may be false as well.
    """
    if kind == "OR":
        return _negated(_run("AND", [_negated(each, True) for each in run]), True)
    guard, ways = _ALWAYS, []
    for each in run:
        ways.append(_all((guard, each.false)))
        guard = _all((guard, each.sound))
        guard = guard if guard.weight <= GUARD_WEIGHT_MAX else _UNKNOWN
    true, false = _all(each.true for each in run), _any(ways)
    if false is _UNKNOWN:
        false = _any(each.false for each in run)._replace(exact=False)
    same = all(each.sound.node == run[0].sound.node for each in run)
    return Meaning(true, false, guard if same else _any((true, false)))


def _all(conditions: Iterable[TranslatedCondition]) -> TranslatedCondition:
    """Return the conjunction, without conditions that another one implies."""
    given = list(conditions)
    parts = _parts(And, given)
    if NOTHING in parts:
        return _NEVER
    kept = tuple(parts.values())
    sure = [each.needs for each in kept if not isinstance(each.node, Present)]
    if len(sure) < len(kept):
        implied = frozenset().union(*sure)
        kept = tuple(each for each in kept if not (isinstance(each.node, Present) and each.node.attribute in implied))
    whole = _joined(And, kept, given)
    return min(given, key=lambda each: each.weight or WEIGHT_MAX)._replace(exact=False) if whole is _UNKNOWN else whole


def _any(conditions: Iterable[TranslatedCondition]) -> TranslatedCondition:
    """Return the disjunction, without conditions that imply another one."""
    given = list(conditions)
    parts = _parts(Or, given)
    if EVERYTHING in parts:
        return _ALWAYS if _ALWAYS in given else _UNKNOWN
    kept = tuple(parts.values())
    if wide := {each.node.attribute for each in kept if isinstance(each.node, Present)}:
        kept = tuple(each for each in kept if isinstance(each.node, Present) or wide.isdisjoint(each.needs))
    return _joined(Or, kept, given)


def _parts(kind: type[And[Node]] | type[Or[Node]], given: list[TranslatedCondition]) -> dict[Node, TranslatedCondition]:
    """Return the different conditions of which a node of ``kind`` that joins ``given`` is made."""
    opened = (each.operands if isinstance(each.node, kind) else (each,) for each in given)
    return {part.node: part for parts in opened for part in parts}


def _joined(
    kind: type[And[Node]] | type[Or[Node]], operands: tuple[TranslatedCondition, ...], given: list[TranslatedCondition]
) -> TranslatedCondition:
    """Return ``operands``, of which ``given`` conditions are made, as one; :data:`_UNKNOWN` if it is too large."""
    weight, depth = sum(each.weight for each in operands), 1 + max((each.depth for each in operands), default=0)
    if weight > WEIGHT_MAX or depth > DEPTH_MAX:
        return _UNKNOWN
    exact = all(each.exact for each in given)
    if len(operands) == 1:
        return operands[0] if operands[0].exact == exact else operands[0]._replace(exact=exact)
    needs = [each.needs for each in operands]
    needed = frozenset().union(*needs) if kind is And else needs[0].intersection(*needs[1:]) if needs else frozenset()
    return TranslatedCondition(kind(tuple(each.node for each in operands)), exact, weight, depth, needed, operands)


def _single(name: str) -> bool:
    return len(casting.names(name)) == 1


def _present(name: str) -> TranslatedCondition:
    return _any(map(_existing, casting.names(name)))


def _existing(name: str) -> TranslatedCondition:
    return TranslatedCondition(Present(name), needs=frozenset({name}))


def _perhaps(node: Expression) -> Meaning:
    """Return the meaning of an expression that cannot be translated: it only reads its attributes."""
    read = _all(_present(name) for name in dict.fromkeys(_addressed(node)))._replace(exact=False)
    return Meaning(read, read, read)


def _addressed(node: Expression) -> Iterable[str]:
    """Yield the names of attributes without which ``node`` always fails."""
    match node:
        case AttributeValue(name=name):
            yield name
        case Chain(first=first, steps=steps):
            for part in (first, *(operand for sign, operand in steps if sign not in ("AND", "OR"))):
                yield from _addressed(part)
        case _:
            for part in parts(node):
                yield from _addressed(part)


def _compared(name: str, sign: str, value: Value) -> Meaning:
    """Return the meaning of an attribute compared with a constant."""
    if sign == "!=":
        return _negated(_compared(name, "=", value), True)
    if sign == "=" and isinstance(value, str):
        return _text(name, Predicate("==", value), _distinct(value))
    bound = None if sign == "=" and isinstance(value, bool) else casting.cast(value, int)
    if bound is None:
        return _perhaps(AttributeValue(name))
    true, false = _OF_INTEGERS[sign]
    return Meaning(
        _question("any", name, Predicate(true, bound), *_CAST_TO_INTEGER, exact=False),
        _question("all", name, Predicate(false, bound), *_CAST_TO_INTEGER, exact=False),
        _existing(name)._replace(exact=False),
    )


def _in(name: str, values: Sequence[Value]) -> Meaning:
    """Return the meaning of an attribute among constants: texts are compared as texts, everything else is cast."""
    texts = tuple(str(casting.cast(value, str)) for value in values)
    exact = all(isinstance(value, str) and _distinct(value) for value in values)
    true = _question("any", name, Predicate("in", texts), *(() if exact else _NO_TEXT), exact=exact)
    read = _existing(name)._replace(exact=False)
    return Meaning(true, read, read)


def _like(name: str, pattern: str) -> Meaning:
    """Return the meaning of an attribute LIKE ``pattern``."""
    first, *others = patterns.pieces(pattern)
    asked: list[tuple[Operator, str, bool]] = []
    if others:
        last = _known(others[-1][::-1])[::-1]
        asked += ("prefix", _known(first), _distinct_start(_known(first))), ("suffix", last, _foreign(last))
        asked += (("contains", _known(each), _foreign(_known(each))) for each in others[:-1])
    elif None not in first:
        asked.append(("==", _known(first), _distinct(_known(first))))
    else:
        asked.append(("prefix", _known(first), _distinct_start(_known(first))))
    asked = [each for each in asked if each[1] or each[0] == "=="]
    clauses = [Predicate(sign, text) for sign, text, _ in asked]
    whole = len(asked) == 1 and None not in (mark for piece in (first, *others) for mark in piece)
    clause = clauses[0] if len(clauses) == 1 else And[Clause](tuple(clauses)) if clauses else _ANY_TEXT
    return _text(name, clause, any(distinct for _, _, distinct in asked), whole=whole)


def _text(name: str, clause: Clause, distinct: bool, *, whole: bool = True) -> Meaning:
    """Return the meaning of a test of an attribute cast to a text, which cannot fail.

    ``distinct``: ``clause`` holds for no cast of a value that is not a text. ``whole``: ``clause`` is the complete
    test.
    """
    read = _existing(name)
    if not (distinct and whole):
        others = () if distinct else _NO_TEXT
        return Meaning(_question("any", name, clause, *others, exact=False), read._replace(exact=False), read)
    return Meaning(_question("any", name, clause), _question("all", name, Not[Clause](clause), *_NO_TEXT), read)


def _question(quantifier: Quantifier, name: str, *clauses: Clause, exact: bool = True) -> TranslatedCondition:
    clause = clauses[0] if len(clauses) == 1 else Or[Clause](clauses)
    return TranslatedCondition(Quantified(quantifier, name, clause), exact, needs=frozenset({name}))


def _known(piece: patterns.Piece) -> str:
    """Return the characters of ``piece`` before its first wildcard."""
    return "".join(takewhile(lambda mark: mark is not None, piece))  # type: ignore[arg-type]


def _distinct(text: str) -> bool:
    """Return whether only ``text`` itself casts to it, and it casts to no other type."""
    return not text or (text[0] not in _NUMERIC and text.lower() not in _WORDS)


def _distinct_start(text: str) -> bool:
    """Return whether only a text, cast to a text, can start with ``text``."""
    return bool(text) and text[0] not in _NUMERIC and not any(word.startswith(text) for word in _WORDS)


def _foreign(text: str) -> bool:
    """Return whether only a text, cast to a text, can contain ``text``."""
    return not _CAST_CHARACTERS.issuperset(text)
