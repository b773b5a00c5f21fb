"""Expressions of interest: read, written and evaluated (SPEC A-06, A-13 to A-16; DESIGN 7).

:func:`parse` turns text into a :class:`Filter`. The subject is not part of a filter: a subscription names it
beside its expression, and :class:`wanderbus.matching.Index` keeps the two together.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.filters import eci
from wanderbus.filters.ast import Node
from wanderbus.filters.evaluate import evaluate

if TYPE_CHECKING:
    from wanderbus.filters import cesql, xml
    from wanderbus.filters.counterexamples import counterexample
    from wanderbus.filters.covering import covers
    from wanderbus.filters.merging import MergedSet, merge, precision, recall
    from wanderbus.filters.normalising import normal_form, to_node

__all__ = [
    "LANGUAGES",
    "Filter",
    "MergedSet",
    "Node",
    "cesql",
    "counterexample",
    "covers",
    "merge",
    "normal_form",
    "parse",
    "precision",
    "recall",
    "to_node",
    "xml",
]

LANGUAGES: Final = ("eci", "cesql", "xml")
"""The subscription language of ECI, CloudEvents SQL, and XML."""


_LATER: Final = {
    "MergedSet": "merging",
    "counterexample": "counterexamples",
    "covers": "covering",
    "merge": "merging",
    "normal_form": "normalising",
    "precision": "merging",
    "recall": "merging",
    "to_node": "normalising",
}
"""Module of each name that is loaded on first use: most callers parse and never compare."""


class Filter(msgspec.Struct, frozen=True):
    """An expression of interest: its ``text`` as given, the ``language`` it is in, and its tree.

    ``str(filter)`` is the canonical text, which is in the language ``eci`` and parses to the same tree.
    """

    text: str
    language: str
    root: Node

    def __str__(self) -> str:
        return eci.write(self.root)

    def evaluate(self, event: Event) -> bool | None:
        """Return True, False, or None if missing or mistyped attributes make the result unknown."""
        return evaluate(self.root, event)

    def matches(self, event: Event) -> bool:
        """Return whether ``event`` matches: unknown is no match."""
        return evaluate(self.root, event) is True


def parse(text: str, language: str = "eci") -> Filter:
    """Return the filter for ``text`` in one of :data:`LANGUAGES`; in ``eci`` a blank text matches every event.

    Raises :class:`FilterError`, whose ``position`` and ``pointed()`` show the fault; for an unknown language it has no
    position, because the fault is not in the text.
    """
    root: Node
    match language:
        case "eci":
            root = eci.read(text)
        case "cesql":
            from wanderbus.filters import cesql

            root = cesql.read(text)
        case "xml":
            from wanderbus.filters import xml

            root = xml.read(text)
        case _:
            languages = ", ".join(LANGUAGES)
            raise FilterError(f"there is no filter language {language!r}; use one of {languages}", text, None)
    return Filter(text, language, root)


if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts every name

    def __getattr__(name: str) -> Any:
        if name in ("cesql", "xml"):
            return importlib.import_module(f"{__name__}.{name}")
        if name in _LATER:
            return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
