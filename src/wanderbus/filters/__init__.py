"""Expressions of interest: read, written and evaluated (SPEC A-06, A-13 to A-16; DESIGN 7).

:func:`parse` turns text into a :class:`Filter`. The subject is not part of a filter: a subscription names it
beside its expression, and :class:`wanderbus.matching.Index` keeps the two together.
"""

from __future__ import annotations

import msgspec

from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.filters import language as eci
from wanderbus.filters.ast import Node
from wanderbus.filters.evaluate import evaluate

__all__ = ["Filter", "Node", "parse"]


class Filter(msgspec.Struct, frozen=True):
    """An expression of interest: its ``text`` as given, the ``language`` it is in, and its tree.

    ``str(filter)`` is the canonical text, which parses to the same tree.
    """

    text: str
    language: str
    root: Node

    def __str__(self) -> str:
        return eci.write(self.root)

    def evaluate(self, event: Event) -> bool | None:
        """Return True, False, or None where missing or mistyped attributes leave it unknown."""
        return evaluate(self.root, event)

    def matches(self, event: Event) -> bool:
        """Return whether ``event`` matches: unknown is no match."""
        return evaluate(self.root, event) is True


def parse(text: str, language: str = "eci") -> Filter:
    """Return the filter that ``text`` says; a blank text is the filter of every event.

    Raises :class:`FilterError`, whose ``position`` and ``pointed()`` show the fault. The only language is ``eci``
    (see :mod:`wanderbus.filters.language`).
    """
    if language != "eci":
        raise FilterError(f"unknown filter language {language!r}; use 'eci'", text, 0)
    return Filter(text, language, eci.read(text))
