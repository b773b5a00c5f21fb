"""Specification of a table: its columns, its partitioning and its checks, as plain data (SPEC T-03)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from wanderbus.pipeline.tables.conditions import ColumnExpression, is_present

Type = Literal["string", "bigint", "double", "boolean", "timestamp", "date", "binary", "variant", "array<string>"]
"""Type of a column, by its name in Spark."""

Layer = Literal["bronze", "silver", "gold"]
"""Bronze tables have records as they are, silver tables have them decoded, gold tables have figures made of these."""

Action = Literal["warn", "drop", "fail"]
"""Action on a row that does not meet a check: it is counted; it goes to the quarantine; the job stops."""

MICROSECONDS: Final = "microseconds since the Unix epoch"


class Column(msgspec.Struct, frozen=True):
    """A column; ``unit`` is for numbers that have one."""

    name: str
    type: Type
    meaning: str
    unit: str | None = None
    nullable: bool = False


class Check(msgspec.Struct, frozen=True):
    """A condition that each row meets, and the action otherwise; a condition without value is unmet."""

    name: str
    condition: ColumnExpression
    action: Action
    meaning: str


class TableSpecification(msgspec.Struct, frozen=True, kw_only=True):
    """A table; the columns of ``partitioned_by`` separate its files."""

    name: str
    layer: Layer
    meaning: str
    columns: tuple[Column, ...]
    partitioned_by: tuple[str, ...]
    checks: tuple[Check, ...] = ()

    @property
    def directory(self) -> str:
        """Path of the table within the lake."""
        return f"{self.layer}/{self.name}"

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """Checks of the table, those included that a column with ``nullable=False`` implies."""
        return (*(_present(column) for column in self.columns if not column.nullable), *self.checks)

    def column(self, name: str) -> Column | None:
        """Return the column of that name, in any case; None if there is none."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)


def _present(column: Column) -> Check:
    return Check(f"{column.name}_present", is_present(column.name), "drop", f"the row has a value of `{column.name}`")
