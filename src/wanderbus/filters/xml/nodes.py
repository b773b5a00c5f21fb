"""Filters in XML: the whole tree, one element for each node and each predicate (SPEC A-06, A-13 to A-16, O-01).

::

    <filter xmlns="urn:wanderbus:1"><and>
      <any name="Stock"><String op="eq">PETR4</String></any>
      <all name="Scores"><or><Integer op="gt">5</Integer><in><Integer>1</Integer><Double>2.5</Double></in></or></all>
      <exists name="Price"/>
      <residual language="cesql">LENGTH(name) = 3</residual>
    </and></filter>

The schema beside this file, ``wanderbus.xsd``, says the same. What a residual needs is not written: it follows from
its expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters.ast import And, Clause, Exists, Node, Not, Operator, Or, Predicate, Quantified, Residual, Rooted
from wanderbus.filters.evaluate import OF_KIND, kind_of
from wanderbus.filters.xml.elements import NAMESPACE, Element, ElementBounds, ElementReader, escaped, shown
from wanderbus.filters.xml.literals import TYPES, read_literal, read_literals, write_literal

BOUNDS: Final = ElementBounds(limits.XML_FILTER_BYTES_MAX, limits.XML_FILTER_DEPTH_MAX, limits.XML_FILTER_ELEMENTS_MAX)
"""Bounds of one filter."""

_OPEN: Final = f'<filter xmlns="{NAMESPACE}">'
_CLOSE: Final = "</filter>"
_WORDS: Final[Mapping[Operator, str]] = {
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "prefix": "prefix",
    "suffix": "suffix",
    "contains": "contains",
}
_OPERATORS: Final = {word: operator for operator, word in _WORDS.items()}
_CESQL: Final = "cesql"
_NOTHING: Final[frozenset[str]] = frozenset()
_NAME: Final = frozenset({"name"})
_OP: Final = frozenset({"op"})
_LANGUAGE: Final = frozenset({"language"})


def read(text: str) -> Node:
    """Return the tree of a ``<filter>``; raise :class:`FilterError` with the position of the fault."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise FilterError("half a character (a lone surrogate)", text, error.start) from None
    reader = ElementReader(read_element, BOUNDS)
    reader.feed(data)
    reader.close()
    (node,) = reader.take()
    return node


def write(node: Node) -> str:
    """Return ``node`` as a ``<filter>`` on one line, which :func:`read` reads back as the same tree.

    Raises :class:`FilterError` for what no language can express: half a character, NaN, a date without a time zone, an
    operator that the type of its operand does not have.
    """
    return f"{_OPEN}{write_content(node)}{_CLOSE}"


def write_filter(filter: Rooted) -> bytes:
    """Return the tree of ``filter`` as XML in UTF-8; raises as :func:`write`."""
    return write(filter.root).encode()


def write_content(node: Node) -> str:
    """Return ``node`` as the child element of a ``<filter>``; raises as :func:`write`."""
    try:
        return _node_text(node)
    except ValueError as error:
        raise FilterError(str(error), "", None) from None


def read_element(element: Element) -> Node:
    """Return the tree of a ``<filter>``; raise :class:`~wanderbus.filters.xml.elements.ElementFault`."""
    if element.name != "filter":
        element.fail(f"expected <filter>, found <{shown(element.name)}>")
    element.check(_NOTHING)
    return _node(element.only_child())


def _node_text(node: Node) -> str:
    match node:
        case Quantified(quantifier=quantifier, attribute=attribute, clause=clause):
            return f'<{quantifier} name="{escaped(attribute)}">{_clause_text(clause)}</{quantifier}>'
        case Exists(attribute=attribute):
            return f'<exists name="{escaped(attribute)}"/>'
        case Residual(language=language, expression=expression):
            if language != _CESQL:
                raise ValueError(f"a residual of the language '{language}', which cannot be read back")
            return f'<residual language="{_CESQL}">{escaped(str(expression))}</residual>'
        case _:
            return _combined_text(node, _node_text)


def _clause_text(clause: Clause) -> str:
    match clause:
        case Predicate(operator="in", operand=tuple() as operands):
            return f"<in>{''.join(write_literal(operand) for operand in operands)}</in>"
        case Predicate(operator=operator, operand=operand):
            assert not isinstance(operand, tuple)
            if operator not in OF_KIND.get(kind_of(operand) or "", ()):
                raise ValueError(f"{type(operand).__name__} {operand!r} has no '{operator}'")
            return write_literal(operand, f' op="{_WORDS[operator]}"')
        case _:
            return _combined_text(clause, _clause_text)


def _combined_text(tree: Not[Any] | And[Any] | Or[Any], text: Callable[[Any], str]) -> str:
    match tree:
        case Not(operand=operand):
            return f"<not>{text(operand)}</not>"
        case And(operands=operands):
            return f"<and>{''.join(map(text, operands))}</and>"
        case Or(operands=operands):
            return f"<or>{''.join(map(text, operands))}</or>"


def _node(element: Element) -> Node:
    match element.name:
        case "any" | "all" as quantifier:
            element.check(_NAME)
            clause = _clause(element.only_child())
            return Quantified("any" if quantifier == "any" else "all", element.attributes["name"], clause)
        case "exists":
            element.check(_NAME)
            if element.children:
                element.fail("<exists> must be empty")
            return Exists(element.attributes["name"])
        case "residual":
            return _residual(element)
        case "not" | "and" | "or":
            return cast(Node, _combined(element, _node))
    element.fail(f"<{shown(element.name)}> is not a condition on an event")


def _clause(element: Element) -> Clause:
    match element.name:
        case "in":
            element.check(_NOTHING)
            return Predicate("in", tuple(read_literals(element)))
        case "not" | "and" | "or":
            return cast(Clause, _combined(element, _clause))
        case name if name in TYPES:
            return _predicate(element)
    element.fail(f"<{shown(element.name)}> is not a condition on a value")


def _combined(element: Element, of: Callable[[Element], Any]) -> Not[Any] | And[Any] | Or[Any]:
    element.check(_NOTHING)
    if element.name == "not":
        return Not(of(element.only_child()))
    operands = tuple(of(child) for child in element.children)
    return And(operands) if element.name == "and" else Or(operands)


def _predicate(element: Element) -> Predicate:
    element.check_attributes(_OP)
    operand = read_literal(element)
    operator = _OPERATORS.get(element.attributes["op"])
    if operator is None or operator not in OF_KIND[cast(str, kind_of(operand))]:
        element.fail(f"<{element.name}> has no op '{shown(element.attributes['op'])}'")
    return Predicate(operator, operand)


def _residual(element: Element) -> Node:
    from wanderbus.filters import cesql  # imported here, so that only callers that use it pay for loading it

    element.check_attributes(_LANGUAGE)
    language = element.attributes["language"]
    if language != _CESQL:
        element.fail(f"no language '{shown(language)}' has residuals; there is '{_CESQL}'")
    try:
        return cesql.read(element.unescaped())
    except FilterError as error:
        element.fail(f"in this expression of {_CESQL}: {error}")
