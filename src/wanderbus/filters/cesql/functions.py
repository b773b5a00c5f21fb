"""The built-in functions of CESQL (CESQL 1.0.0, 3.5).

Characters are Unicode code points. White space is defined by Unicode, so some control characters that Python's
``strip`` removes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from wanderbus import limits
from wanderbus.filters.cesql.casting import INTEGER_MAX, INTEGER_MIN, ErrorKind
from wanderbus.filters.cesql.tree import Value

WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters with the property White_Space (Unicode 15, PropList)."""


class FunctionFault(Exception):
    """A function cannot be applied to its arguments; it still gives ``value``."""

    def __init__(self, kind: ErrorKind, value: Value) -> None:
        super().__init__(kind)
        self.kind = kind
        self.value = value


class Function(msgspec.Struct, frozen=True):
    """Types of a function's arguments and result, and its implementation."""

    takes: tuple[type[Value], ...]
    gives: type[Value]
    call: Callable[..., Value]
    rest: type[Value] | None = None
    """The type of any number of further arguments."""


def find(name: str, count: int) -> Function | None:
    """Return the function ``name`` of ``count`` arguments, or None."""
    for function in FUNCTIONS.get(name, ()):
        if count == len(function.takes) or (function.rest is not None and count > len(function.takes)):
            return function
    return None


def _absolute(x: int) -> int:
    if x == INTEGER_MIN:
        raise FunctionFault("math", INTEGER_MAX)
    return abs(x)


def _left(x: str, count: int) -> str:
    if count < 0:
        raise FunctionFault("functionEvaluation", x)
    return x[:count]


def _right(x: str, count: int) -> str:
    if count < 0:
        raise FunctionFault("functionEvaluation", x)
    return x[max(len(x) - count, 0) :]


def _substring(x: str, position: int, length: int = INTEGER_MAX) -> str:
    if abs(position) > len(x) or length < 0:
        raise FunctionFault("functionEvaluation", "")
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(x) + position
    return x[start : start + length]


def _joined(delimiter: str, *texts: str) -> str:
    if sum(map(len, texts)) + len(delimiter) * len(texts) > limits.CESQL_TEXT_CHARACTERS_MAX:
        raise FunctionFault("functionEvaluation", "")
    return delimiter.join(texts)


def _same(x: Any) -> Any:
    return x


FUNCTIONS: Final[Mapping[str, tuple[Function, ...]]] = {
    "INT": (Function((int,), int, _same),),
    "BOOL": (Function((bool,), bool, _same),),
    "STRING": (Function((str,), str, _same),),
    "ABS": (Function((int,), int, _absolute),),
    "LENGTH": (Function((str,), int, len),),
    "CONCAT": (Function((), str, lambda *texts: _joined("", *texts), rest=str),),
    "CONCAT_WS": (Function((str,), str, _joined, rest=str),),
    "LOWER": (Function((str,), str, str.lower),),
    "UPPER": (Function((str,), str, str.upper),),
    "TRIM": (Function((str,), str, lambda x: x.strip(WHITE_SPACE)),),
    "LEFT": (Function((str, int), str, _left),),
    "RIGHT": (Function((str, int), str, _right),),
    "SUBSTRING": (Function((str, int), str, _substring), Function((str, int, int), str, _substring)),
}
"""Functions by name; functions of one name differ in their number of arguments."""
