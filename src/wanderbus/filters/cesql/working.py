"""Estimated work of an expression in CESQL, computed from its tree: every node, and the texts it processes.

The length of a text that an expression makes is linear in the lengths of attributes, so the work is too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.filters.cesql import casting, patterns
from wanderbus.filters.cesql.tree import (
    AttributeExists,
    AttributeValue,
    Expression,
    FunctionCall,
    In,
    Like,
    LiteralValue,
    parts,
)
from wanderbus.filters.work import OPERATION
from wanderbus.filters.work_counts import Work

NODE: Final = 4 * OPERATION
"""Units of work of one node."""

EVALUATION: Final = 16 * OPERATION
"""Units of an evaluation by itself, which usually ends with an error because an attribute is missing."""

_CASED: Final = frozenset({"UPPER", "LOWER"})
_EIGHTHS: Final = {"TRIM": 18, "UPPER": 4, "LOWER": 4}
"""Eighths of a unit for each character, by function; the others take one eighth."""

_CUTTING: Final = {"LEFT": 2, "RIGHT": 2, "SUBSTRING": 3}
"""Functions whose last of so many arguments sets the length of the result."""

_NUMBER_CHARACTERS: Final = 16
_CUT_MAX: Final = 1_024
"""Length up to which a cut text counts with its cut length."""


class _Length(msgspec.Struct):
    """Upper bound of a text's length: ``fixed`` characters, and a multiple of the length of each attribute."""

    fixed: int = 0
    times: dict[str, int] = {}

    def add(self, other: _Length) -> None:
        self.fixed += other.fixed
        for name, times in other.times.items():
            self.times[name] = self.times.get(name, 0) + times


def work_of(root: Expression) -> Work:
    """Return the work of evaluating ``root`` for an event."""
    work = Work(EVALUATION)
    _of(root, work)
    return work


def _of(node: Expression, work: Work) -> _Length:
    """Add the work of ``node`` with all nodes below it; return the length of its resulting text."""
    work.fixed += NODE
    match node:
        case LiteralValue(value=value):
            return _Length(len(value) if isinstance(value, str) else _NUMBER_CHARACTERS)
        case AttributeValue(name=identifier):
            found = _Length()
            for name in casting.names(identifier):
                work.share(name).items += NODE  # a list is converted item by item
                found.times[name] = 1
            return found
        case AttributeExists():
            return _Length(_NUMBER_CHARACTERS)
    lengths = [_of(part, work) for part in parts(node)]
    for part in parts(node):
        if isinstance(part, AttributeValue):  # each item of a list is compared
            for name in casting.names(part.name):
                work.share(name).items += NODE
    match node:
        case Like(pattern=pattern):
            _charge(work, lengths, patterns.eighths(pattern), False)
        case FunctionCall(name=name):
            _charge(work, lengths, _EIGHTHS.get(name, 1), name in _CASED)
            return _given(node, lengths)
        case In(items=items):
            work.fixed += NODE * len(items)  # each is cast to several types
            _charge(work, lengths, 2, False)
        case _:
            _charge(work, lengths, 2, False)
    return _Length(_NUMBER_CHARACTERS)


def _charge(work: Work, lengths: list[_Length], eighths: int, is_cased: bool) -> None:
    for length in lengths:
        work.fixed += eighths * length.fixed >> 3
        for name, times in length.times.items():
            share = work.share(name)
            if is_cased:
                share.cased += eighths * times
            else:
                share.characters += eighths * times


def _given(call: FunctionCall, lengths: list[_Length]) -> _Length:
    """Return the length of the text that a function returns."""
    if call.name in _CUTTING and len(call.arguments) == _CUTTING[call.name]:
        match call.arguments[-1]:
            case LiteralValue(value=int(most)) if 0 <= most <= _CUT_MAX:
                return _Length(most)
    given = _Length(_NUMBER_CHARACTERS)
    if call.name == "CONCAT_WS" and lengths:
        for _ in lengths[1:]:
            given.add(lengths[0])
    for length in lengths:
        given.add(length)
    return given
