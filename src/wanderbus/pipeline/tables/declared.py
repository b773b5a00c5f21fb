"""Columns of declared attributes in the table of events (SPEC T-03).

An attribute's column has its name, followed by ``_`` where the table has a column of that name. Attributes stay in the
variant if their name cannot be that of a column, or if another attribute has the column: names that differ only in case
are one name to Spark, and subjects may declare one name with types that no type contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from wanderbus.event import TypeName
from wanderbus.pipeline.tables.catalogue import EVENTS
from wanderbus.pipeline.tables.specification import Column, Table, Type

Declared = Mapping[str, Mapping[str, TypeName]]
"""Declared attributes: for each subject, the types of its attributes by name."""

COLUMN_TYPES: Final[Mapping[TypeName, Type]] = {
    "String": "string",
    "Integer": "bigint",
    "Double": "double",
    "Boolean": "boolean",
    "Date": "timestamp",
}
"""Types of columns by those of attributes."""

_WIDER: Final[Mapping[tuple[Type, Type], Type]] = {("bigint", "double"): "double", ("double", "bigint"): "double"}
_UNUSABLE: Final = re.compile(r"[ ,;{}()\n\t=`.\x00-\x1f]|\A\Z|\A_")
"""Names that Delta or Parquet refuse, or that readers take for paths or for hidden columns."""


def events_table(declared: Declared, existing: Iterable[Column] = ()) -> Table:
    """Return the table of events with the columns of ``declared``, after the ``existing`` ones of such columns.

    A column that exists keeps its type, as its files have it.
    """
    fixed = {column.name: column for column in existing}
    wanted: dict[str, Column] = {}
    for name, kind in _attributes(declared):
        column_name = column_of(name)
        if column_name is None:
            continue
        found = wanted.get(column_name)
        if found is None:
            wanted[column_name] = Column(column_name, kind, f"attribute `{name}` of the events", nullable=True)
        elif wider := _WIDER.get((found.type, kind)):
            wanted[column_name] = msgspec.structs.replace(found, type=wider)
    names = {name.lower() for name in fixed}
    added = []
    for column in wanted.values():
        if column.name.lower() not in names:
            names.add(column.name.lower())
            added.append(column)
    return msgspec.structs.replace(EVENTS, columns=(*EVENTS.columns, *fixed.values(), *added))


def column_of(attribute: str) -> str | None:
    """Return the name of an attribute's column; None for an attribute that stays in the variant."""
    if _UNUSABLE.search(attribute):
        return None
    return f"{attribute}_" if EVENTS.column(attribute) else attribute


def columns_of(subject: str, declared: Declared, table: Table) -> dict[str, Column]:
    """Return the columns that the subject's declared attributes have in ``table``, by attribute.

    An attribute is left out if its column has a type that does not contain the declared one.
    """
    own = {column.name: column for column in table.columns[len(EVENTS.columns) :]}
    found: dict[str, Column] = {}
    for attribute, declared_type in declared.get(subject, {}).items():
        column = own.get(column_of(attribute) or "")
        kind = COLUMN_TYPES[declared_type]
        if column and (column.type == kind or _WIDER.get((column.type, kind)) == column.type):
            found[attribute] = column
    return found


def _attributes(declared: Declared) -> Iterator[tuple[str, Type]]:
    for attributes in declared.values():
        for name, declared_type in attributes.items():
            yield name, COLUMN_TYPES[declared_type]
