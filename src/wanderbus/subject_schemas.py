"""Schemas of subjects: the declared attributes of a subject's events, in versions (SPEC T-03).

A schema is a description for readers of the history, such as the pipeline, which makes a typed column of each declared
attribute. The broker accepts events that do not fit. A value that does not fit stays as it was published.

The declared types are those of scalars. A list fits none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from wanderbus import limits
from wanderbus.event import DeclaredAttribute, Scalar, TypeName

WIDENINGS: Final[Mapping[TypeName, TypeName]] = {"Integer": "Double"}
"""The wider type of each type that has one.

No type widens to String: a text no longer compares as the number, the Date or the Boolean that was published.
"""


class SubjectSchema(msgspec.Struct, frozen=True):
    """Version ``version`` of the schema of ``subject``; versions count from 1.

    The user ``by`` declared it at ``at_us``, µs since the Unix epoch. It holds for events behind ``offset`` of the
    server's log, until the next version.
    """

    subject: str
    version: int
    attributes: tuple[DeclaredAttribute, ...]
    by: str
    at_us: int
    offset: int


class TypedValue(NamedTuple):
    """A value as one of a declared type; ``is_exact`` is False if it is the Double of an Integer.

    CESQL takes a Double for a String, and large Integers have no exact Double. So a reader that must answer as the
    broker does keeps the published value beside one that is not exact.
    """

    value: Scalar
    is_exact: bool = True


def typed(value: object, type_: TypeName) -> TypedValue | None:
    """Return an event's value as one of ``type_``, or None if it does not fit.

    A Date is returned in UTC. Every Integer fits Double: without this, a wider type would hold fewer values.
    """
    match type_, value:
        case ("Boolean", bool(fitting)) | ("String", str(fitting)) | ("Double", float(fitting)):
            return TypedValue(fitting)
        case "Integer" | "Double", bool():
            return None
        case "Integer", int(number) if -(2**63) <= number < 2**63:
            return TypedValue(number)
        case "Double", int(number) if -(2**63) <= number < 2**63:
            return TypedValue(float(number), is_exact=False)
        case "Date", datetime() if value.tzinfo is not None:
            return _in_utc(value)
    return None


def widens(narrow: TypeName, wide: TypeName) -> bool:
    """Return whether every value that fits ``narrow`` also fits ``wide``."""
    return narrow == wide or WIDENINGS.get(narrow) == wide


def common_type(one: TypeName, other: TypeName) -> TypeName | None:
    """Return the narrowest type that both types widen to, None if there is none."""
    if widens(one, other):
        return other
    return one if widens(other, one) else None


def next_attributes(
    declared: Sequence[DeclaredAttribute], wanted: Iterable[DeclaredAttribute]
) -> tuple[DeclaredAttribute, ...]:
    """Return the attributes of the version that follows ``declared``, if a user wants ``wanted``; both are complete.

    A version adds attributes, widens types, and adds units. A unit or meaning that is left out stays. The result equals
    ``declared`` if nothing changes. :class:`ValueError` says which attribute cannot change in this way.
    """
    asked: dict[str, DeclaredAttribute] = {}
    for attribute in wanted:
        _check(attribute)
        if attribute.name in asked:
            raise ValueError(f"the attribute {attribute.name!r} is declared twice; declare it once")
        asked[attribute.name] = attribute
    attributes = tuple(_successor(old, asked.pop(old.name, None)) for old in declared) + tuple(asked.values())
    if not attributes:
        raise ValueError("no attributes; declare at least one")
    if len(attributes) > limits.EVENT_ATTRIBUTES_MAX:
        raise ValueError(f"{len(attributes)} attributes; the limit is {limits.EVENT_ATTRIBUTES_MAX}")
    if (size := len(msgspec.msgpack.encode(attributes))) > limits.SCHEMA_BYTES_MAX:
        raise ValueError(f"{size} bytes; the limit is {limits.SCHEMA_BYTES_MAX}; shorten the meanings")
    return attributes


def _successor(old: DeclaredAttribute, new: DeclaredAttribute | None) -> DeclaredAttribute:
    """Return ``new`` completed by ``old``; :class:`ValueError` if values that fitted ``old`` would be lost."""
    name = old.name
    if new is None:
        raise ValueError(f"the attribute {name!r} is left out; attributes cannot be removed, declare it as {old.type}")
    if not widens(old.type, new.type):
        remedy = f"; only {WIDENINGS[old.type]} is wider" if old.type in WIDENINGS else ""
        raise ValueError(f"the attribute {name!r} is {old.type} and cannot become {new.type}{remedy}")
    if None not in (old.unit, new.unit) and old.unit != new.unit:
        raise ValueError(
            f"the unit of {name!r} is {old.unit!r} and cannot become {new.unit!r}; declare another attribute"
        )
    return DeclaredAttribute(name, new.type, new.unit or old.unit, new.meaning or old.meaning)


def _check(attribute: DeclaredAttribute) -> None:
    """Raise :class:`ValueError` for texts that are empty or too long."""
    for text, of, longest in (
        (attribute.name, "the name of an attribute", limits.EVENT_NAME_CHARACTERS_MAX),
        (attribute.unit, f"the unit of {attribute.name!r}", limits.SCHEMA_UNIT_CHARACTERS_MAX),
        (attribute.meaning, f"the meaning of {attribute.name!r}", limits.SCHEMA_MEANING_CHARACTERS_MAX),
    ):
        if text is not None and not 0 < len(text) <= longest:
            raise ValueError(f"{of} has {len(text)} characters; it must have 1 to {longest}")


def _in_utc(value: datetime) -> TypedValue | None:
    try:
        return TypedValue(value.astimezone(UTC))
    except OverflowError:  # the first or the last day of the calendar, at an offset from UTC
        return None
