"""Conditions on the rows of a table: each is text in Spark's SQL, and is evaluated on Arrow columns.

Evaluation has the three values of SQL; a condition without value is unmet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_OR, _COMPARISON, _SUM, _WHOLE = range(4)
"""Firmness with which an expression holds together: a looser one is in parentheses within a firmer one."""


class ColumnExpression(msgspec.Struct, frozen=True, eq=False):
    """A value of each row, by a function of its parts; operators make larger ones, as ``column("n") >= 0``."""

    text: str
    binding: int
    function: Callable[..., Any]
    parts: tuple[Any, ...] = ()

    def __str__(self) -> str:
        """Return the expression in SQL."""
        return self.text

    def evaluate(self, rows: pa.RecordBatch) -> Any:
        """Return the values, null where there is none."""
        parts = [part.evaluate(rows) if isinstance(part, ColumnExpression) else part for part in self.parts]
        return self.function(*parts)

    def met(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether it meets this condition."""
        return pc.fill_null(self.evaluate(rows), False)

    def is_null(self) -> ColumnExpression:
        """Return the condition that there is no value."""
        return ColumnExpression(f"{self.text} is null", _COMPARISON, pc.is_null, (self,))

    def is_in(self, *options: str | int) -> ColumnExpression:
        """Return the condition that the value is one of ``options``."""
        return ColumnExpression(
            f"{self.text} in ({', '.join(map(repr, options))})", _COMPARISON, _is_among, (self, options)
        )

    def size(self) -> ColumnExpression:
        """Return the number of items of a list."""
        return ColumnExpression(f"size({self.text})", _WHOLE, pc.list_value_length, (self,))

    def __add__(self, other: int | ColumnExpression) -> ColumnExpression:
        return self._with(other, "+", _SUM, pc.add)

    def __or__(self, other: ColumnExpression) -> ColumnExpression:
        return self._with(other, "or", _OR, pc.or_kleene)

    def __eq__(self, other: object) -> ColumnExpression:  # type: ignore[override]
        return self._with(other, "=", _COMPARISON, pc.equal)

    def __ne__(self, other: object) -> ColumnExpression:  # type: ignore[override]
        return self._with(other, "<>", _COMPARISON, pc.not_equal)

    def __lt__(self, other: object) -> ColumnExpression:
        return self._with(other, "<", _COMPARISON, pc.less)

    def __le__(self, other: object) -> ColumnExpression:
        return self._with(other, "<=", _COMPARISON, pc.less_equal)

    def __gt__(self, other: object) -> ColumnExpression:
        return self._with(other, ">", _COMPARISON, pc.greater)

    def __ge__(self, other: object) -> ColumnExpression:
        return self._with(other, ">=", _COMPARISON, pc.greater_equal)

    def _with(self, other: object, operator: str, binding: int, function: Callable[..., Any]) -> ColumnExpression:
        texts = (_within(part, binding) for part in (self, other))
        return ColumnExpression(f" {operator} ".join(texts), binding, function, (self, other))


class _Column(ColumnExpression, frozen=True, eq=False):
    name: str = ""

    def evaluate(self, rows: pa.RecordBatch) -> Any:
        return rows.column(self.name)


def column(name: str) -> ColumnExpression:
    """Return the value of a column."""
    return _Column(name, _WHOLE, _nothing, name=name)


def is_present(name: str) -> ColumnExpression:
    """Return the condition that a column has a value."""
    return ColumnExpression(f"`{name}` is not null", _COMPARISON, pc.is_valid, (column(name),))


def _within(part: object, binding: int) -> str:
    if not isinstance(part, ColumnExpression):
        return repr(part)
    return f"({part.text})" if part.binding < binding or part.binding == binding == _COMPARISON else part.text


def _nothing() -> None:
    return None


def _is_among(values: Any, options: tuple[str | int, ...]) -> Any:
    return pc.is_in(values, pa.array(options, values.type))
