"""Filters that Spark pushes down to the source: bounds for choosing blocks, and conditions on rows (SPEC T-02)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

NUMBER_COLUMNS: Final = frozenset({"offset", "at_us"})
TEXT_COLUMNS: Final = frozenset({"kind", "user", "session", "device", "subject"})

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, among: value in among,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
_UNARY: Final = (IsNull, IsNotNull)
_BINARY: Final = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_OF_TEXT: Final = (StringStartsWith, StringEndsWith, StringContains)


class ColumnCondition(msgspec.Struct, frozen=True):
    """One condition on a column, as SQL understands it: a comparison with null does not hold, nor does its negation."""

    column: str
    comparison: str
    value: Any = None
    is_negated: bool = False

    @classmethod
    def parse(cls, pushed: Filter) -> Self | None:
        """Return the condition that a filter of Spark is; None if the source cannot check it."""
        is_negated = isinstance(pushed, Not)
        inner = pushed.child if isinstance(pushed, Not) else pushed
        name = type(inner).__name__
        path: tuple[str, ...] = getattr(inner, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        if isinstance(inner, _UNARY):
            return cls(column, name, None, is_negated) if column in NUMBER_COLUMNS | TEXT_COLUMNS else None
        kind = int if column in NUMBER_COLUMNS else str if column in TEXT_COLUMNS else None
        if isinstance(inner, In):
            values = frozenset(inner.value)
            return cls(column, name, values, is_negated) if kind and all(type(v) is kind for v in values) else None
        if isinstance(inner, _BINARY) or (isinstance(inner, _OF_TEXT) and kind is str):
            return cls(column, name, inner.value, is_negated) if kind and type(inner.value) is kind else None
        return None

    def mask(self, values: Sequence[Any]) -> list[bool]:
        """Return for each value whether the condition holds."""
        if self.comparison == "IsNull":
            return [(value is None) != self.is_negated for value in values]
        if self.comparison == "IsNotNull":
            return [(value is not None) != self.is_negated for value in values]
        compare, other, is_negated = _COMPARISONS[self.comparison], self.value, self.is_negated
        if self.comparison == "EqualNullSafe":
            return [(value == other) != is_negated for value in values]
        return [value is not None and compare(value, other) != is_negated for value in values]


class Pushed(msgspec.Struct, frozen=True):
    """Everything that was pushed down."""

    conditions: tuple[ColumnCondition, ...] = ()

    @classmethod
    def parse(cls, filters: Iterable[Filter]) -> tuple[Self, list[Filter]]:
        """Return what the source checks, and the filters that it leaves to Spark."""
        conditions, left = [], []
        for each in filters:
            condition = ColumnCondition.parse(each)
            if condition is None:
                left.append(each)
            else:
                conditions.append(condition)
        return cls(tuple(conditions)), left

    @property
    def columns(self) -> frozenset[str]:
        """Columns that have a condition."""
        return frozenset(condition.column for condition in self.conditions)

    def bounds(self, column: str) -> tuple[int | None, int | None]:
        """Return the least and the largest number that the conditions on ``column`` leave; None without a bound."""
        least, most = [], []
        for each in self.conditions:
            if each.column == column and not each.is_negated:
                low, high = _interval(each)
                least += [] if low is None else [low]
                most += [] if high is None else [high]
        return max(least, default=None), min(most, default=None)


def _interval(condition: ColumnCondition) -> tuple[int | None, int | None]:
    value = condition.value
    match condition.comparison:
        case "EqualTo" | "EqualNullSafe":
            return value, value
        case "GreaterThan":
            return value + 1, None
        case "GreaterThanOrEqual":
            return value, None
        case "LessThan":
            return None, value - 1
        case "LessThanOrEqual":
            return None, value
        case "In":
            return min(value, default=1), max(value, default=0)
        case _:
            return None, None
