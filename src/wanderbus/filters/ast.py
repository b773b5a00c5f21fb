"""Syntax tree to which every filter language parses (SPEC A-06, A-13 to A-16; DESIGN 2.5, 7).

Nodes are plain immutable data. A filter is a Boolean combination of questions about attributes: :class:`Exists` asks
whether an attribute exists, and :class:`Quantified` whether a clause holds for its value. A clause is a Boolean
combination of :class:`Predicate`, all of them about **one** value. Whatever else a language can express is kept as a
:class:`Residual`. The semantics of nodes are in :mod:`wanderbus.filters.evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

Operator = Literal["==", "!=", "<", "<=", ">", ">=", "prefix", "suffix", "contains", "in"]
"""The atomic predicates of SPEC A-06 and A-15."""

Operand = str | int | float | bool | datetime
"""Values that an attribute may be compared with: a literal of the five types of SPEC A-13."""

Quantifier = Literal["any", "all"]
"""Quantifier over the items of a list (SPEC A-16); a value that is not a list is its own only item."""

T = TypeVar("T")


class Predicate(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A test of one value: ``value operator operand``; the operand of ``in`` is a tuple of operands."""

    operator: Operator
    operand: Operand | tuple[Operand, ...]

    def __eq__(self, other: object) -> bool:
        # Python treats True, 1 and 1.0 as equal; a tree distinguishes them, as the text does (SPEC A-13).
        return isinstance(other, Predicate) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        operands = self.operand if isinstance(self.operand, tuple) else (self.operand,)
        return self.operator, operands, tuple(type(operand) for operand in operands)


class Not(msgspec.Struct, Generic[T], frozen=True, gc=False, cache_hash=True):
    """True where ``operand`` is false, and unknown where it is unknown."""

    operand: T


class And(msgspec.Struct, Generic[T], frozen=True, gc=False, cache_hash=True):
    """True where every operand is; without operands always true."""

    operands: tuple[T, ...]


class Or(msgspec.Struct, Generic[T], frozen=True, gc=False, cache_hash=True):
    """True where some operand is; without operands always false."""

    operands: tuple[T, ...]


Clause = Predicate | Not["Clause"] | And["Clause"] | Or["Clause"]
"""A condition on one value."""


class Quantified(msgspec.Struct, frozen=True, gc=False):
    """``clause`` holds for any, or for all, of the items of ``attribute``."""

    quantifier: Quantifier
    attribute: str
    clause: Clause


class Exists(msgspec.Struct, frozen=True, gc=False):
    """The event has ``attribute``, whatever its value; never unknown."""

    attribute: str


class Expression(Protocol):
    """An expression that another language keeps in its own tree; immutable, hashable, equal if its meaning is."""

    def holds(self, attributes: Mapping[str, Any]) -> bool | None:
        """Return whether an event with ``attributes`` matches: True, False, or None for unknown."""

    def work(self) -> Any:
        """Return the work of evaluating it, a :class:`wanderbus.filters.work.Work`."""

    def __str__(self) -> str:
        """Return the canonical text, which parses to the same expression."""


class Residual(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """An ``expression`` of ``language`` that does not fit this tree: evaluated exactly, opaque to covering.

    Wherever it is true, ``needed`` is true too: an index may look for that first.
    """

    language: str
    expression: Any
    """An :class:`Expression`."""
    needed: Node = And(())


Node = Quantified | Exists | Residual | Not["Node"] | And["Node"] | Or["Node"]
"""A condition on an event."""


class Rooted(Protocol):
    """A filter of any language, which has a tree."""

    @property
    def root(self) -> Node:
        """The tree."""


EVERYTHING: Final[Node] = And(())
"""The filter of a blank expression: every event of the subject."""

NOTHING: Final[Node] = Or(())
"""The filter that no event matches."""
