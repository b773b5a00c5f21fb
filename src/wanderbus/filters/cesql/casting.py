"""Values of CESQL: conversion of attributes, and casts between types (CESQL 3.1, 3.7)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal

from wanderbus.filters.cesql.tree import Expression, Value
from wanderbus.literals import to_text

ErrorKind = Literal["parse", "math", "cast", "missingAttribute", "missingFunction", "functionEvaluation", "generic"]
"""The errors of CESQL 3.3, by their names in the conformance suite."""

INTEGER_MIN: Final = -(2**31)
INTEGER_MAX: Final = 2**31 - 1

REQUIRED: Final = frozenset({"id", "source", "specversion", "type"})
"""Context attributes that every CloudEvent has."""

CONTEXT: Final = REQUIRED | {"datacontenttype", "dataschema", "subject", "time"}
"""The context attributes of CloudEvents 1.0, which are lower case even if an expression writes them otherwise."""

ZERO: Final[Mapping[type[Value], Value]] = {str: "", int: 0, bool: False}
"""The zero value of each type."""

_INTEGER: Final = re.compile(r"([+-]?)(?:0*+([0-9]{1,10})|0++)")
_BOOLEANS: Final = {"true": True, "false": False}


class CastFailure(Exception):
    """``node`` cannot be evaluated; it still gives ``value``, and the evaluation ends."""

    def __init__(self, kind: ErrorKind, node: Expression, value: Value) -> None:
        super().__init__(kind)
        self.kind = kind
        self.node = node
        self.value = value


class Items(list[Value]):
    """A list attribute; its text, which may be needed many times, is made once."""

    @cached_property
    def text(self) -> str:
        """The items as a JSON array."""
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))


class Presented(dict[str, Any]):
    """Attributes by name as CESQL sees them, each converted once for one evaluation; None for a missing attribute."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__()
        self._attributes = attributes

    def __missing__(self, name: str) -> Value | Items | None:
        value = self._attributes.get(name)
        self[name] = found = None if value is None else present(value)
        return found


def names(identifier: str) -> tuple[str, ...]:
    """Return the attribute names that ``identifier`` may mean: the first one that an event has counts."""
    lower = identifier.lower()
    return (identifier, lower) if lower in CONTEXT and lower != identifier else (identifier,)


def present(value: Any) -> Value | Items:
    """Return an attribute's value as CESQL sees it; a list is converted item by item."""
    if isinstance(value, list):
        return Items(map(_scalar, value))
    return _scalar(value)


def cast(value: Value | Items, wanted: type[Value]) -> Value | None:
    """Return ``value`` cast to the ``wanted`` type, or None if the cast fails."""
    if isinstance(value, list):
        value = value.text
    if type(value) is wanted:
        return value
    if wanted is str:
        return _BOOLEAN_TEXTS[value] if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        return wanted(value)
    if wanted is bool:
        return _BOOLEANS.get(value.lower())
    return _integer(value)


_BOOLEAN_TEXTS: Final[Mapping[Any, str]] = {True: "true", False: "false"}


def _integer(text: str) -> int | None:
    if not (parsed := _INTEGER.fullmatch(text)):
        return None
    value = int(parsed[1] + (parsed[2] or "0"))
    return value if INTEGER_MIN <= value <= INTEGER_MAX else None


def _scalar(value: Any) -> Value:
    match value:
        case str() | bool():
            return value
        case int() if INTEGER_MIN <= value <= INTEGER_MAX:
            return value
        case float():
            return repr(value)
        case datetime():
            return to_text(value) if value.tzinfo is not None else value.isoformat()
        case _:
            return str(value)
