"""Typed literals as elements: ``<Integer>25</Integer>`` (SPEC A-13, O-01)."""

from __future__ import annotations

from typing import Final, cast

from wanderbus.event import TYPE_NAMES, Scalar, TypeName
from wanderbus.filters.xml.elements import SPACE, Element, escaped, shown
from wanderbus.literals import from_text, to_text, type_name

TYPES: Final = frozenset(TYPE_NAMES)
"""Names of the elements of literals."""


def write_literal(value: Scalar, attribute: str = "") -> str:
    """Return ``value`` as an element, with ``attribute`` (already written, after a blank) in its tag.

    Raises :class:`ValueError` if it cannot be written.
    """
    name = type_name(value)
    return f"<{name}{attribute}>{escaped(to_text(value))}</{name}>"


def read_literal(element: Element) -> Scalar:
    """Return the value of ``element``, whose name is of :data:`TYPES`; blanks matter only in a String."""
    name = cast(TypeName, element.name)
    text = element.unescaped()
    try:
        return from_text(name, text if name == "String" else text.strip(SPACE))
    except ValueError as error:
        element.fail(str(error))


def read_literals(element: Element) -> list[Scalar]:
    """Return the values of the children of ``element``, each a literal without attributes."""
    for child in element.children:
        if child.name not in TYPES:
            child.fail(f"<{element.name}> must contain literals, not <{shown(child.name)}>")
        child.check_attributes(frozenset())
    return [read_literal(child) for child in element.children]
