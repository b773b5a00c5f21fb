"""Columns of declared attributes in the table of events (SPEC T-03).

An attribute's column has its name. One more ``_`` follows if the table has a column of that name, in any case and
without the ``_`` at its end: attributes that differ have columns that differ, ``user`` having ``user_`` and ``user_``
having ``user__``. Attributes stay in the variant if their name cannot be that of a column, or if another attribute
has the column: names that differ only in case are one name to Spark, and subjects may declare one name with types
that no type contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from wanderbus.event import TypeName
from wanderbus.pipeline.tables.silver import EVENTS
from wanderbus.pipeline.tables.specification import Column, TableSpecification, Type
from wanderbus.subject_schemas import common_type, widens

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

TYPE_NAMES: Final[Mapping[Type, TypeName]] = {column: name for name, column in COLUMN_TYPES.items()}
"""Types of attributes by those of columns."""

_UNUSABLE: Final = re.compile(r"[ ,;{}()\n\t=`.\x00-\x1f]|\A\Z|\A_")
"""Names that Delta or Parquet refuse, or that readers take for paths or for hidden columns."""


def events_table(declared: Declared, existing: Iterable[Column] = ()) -> TableSpecification:
    """Return the table of events with the columns of ``declared``, after the ``existing`` ones of such columns.

    A column that exists is widened if an attribute is declared with a wider type. Otherwise it keeps its type.
    """
    columns = {column.name: column for column in existing}
    names = {name.lower(): name for name in columns}
    for attribute, declared_type in _attributes(declared):
        name = column_of(attribute)
        if name is None or names.setdefault(name.lower(), name) != name:
            continue
        found = columns.get(name)
        if found is None:
            kind = COLUMN_TYPES[declared_type]
            columns[name] = Column(name, kind, f"attribute `{attribute}` of the events", nullable=True)
        elif wider := common_type(TYPE_NAMES[found.type], declared_type):
            columns[name] = msgspec.structs.replace(found, type=COLUMN_TYPES[wider])
    return msgspec.structs.replace(EVENTS, columns=(*EVENTS.columns, *columns.values()))


def column_of(attribute: str) -> str | None:
    """Return the name of an attribute's column; None for an attribute that stays in the variant."""
    if _UNUSABLE.search(attribute):
        return None
    return f"{attribute}_" if _is_like_own(attribute) else attribute


def attribute_of(column: str) -> str | None:
    """Return the attribute whose values a column of events has; None for a column of the event itself."""
    if not _is_like_own(column):
        return column
    return column[:-1] if column.endswith("_") else None


def _is_like_own(name: str) -> bool:
    return EVENTS.column(name.rstrip("_")) is not None


def columns_of(subject: str, declared: Declared, table: TableSpecification) -> dict[str, Column]:
    """Return the columns that the subject's declared attributes have in ``table``, by attribute.

    An attribute is left out if its column has a type that does not contain the declared one.
    """
    own = {column.name: column for column in table.columns[len(EVENTS.columns) :]}
    found: dict[str, Column] = {}
    for attribute, declared_type in declared.get(subject, {}).items():
        column = own.get(column_of(attribute) or "")
        if column and widens(declared_type, TYPE_NAMES[column.type]):
            found[attribute] = column
    return found


def _attributes(declared: Declared) -> Iterator[tuple[str, TypeName]]:
    for attributes in declared.values():
        yield from attributes.items()
