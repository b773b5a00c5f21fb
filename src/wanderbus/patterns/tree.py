"""Syntax tree of a pattern: its steps, how they follow each other, and the clauses behind them (SPEC T-07).

Nodes are plain immutable data. A step is named by its place in :attr:`Declaration.steps`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from wanderbus.filters import Filter

TimeSource = Literal["receipt", "publication", "event"]
"""Origin of an event's time: the server's receipt, the publisher's clock, or an attribute of type Date."""

Selection = Literal["first", "every", "past"]
"""Matches that are detected: the first one for each first event, every one, or matches that do not overlap."""


class Leaf(msgspec.Struct, frozen=True):
    """A condition on one event: its ``subject``, ``*`` for all, and a filter of any language."""

    subject: str
    filter: Filter


class Constant(msgspec.Struct, frozen=True):
    """A literal of an expression; a duration is a ``timedelta``."""

    value: Any


class Series(msgspec.Struct, frozen=True):
    """The values of an attribute, or with ``attribute`` None the times, of the events that a step took.

    As a value it is the last of them.
    """

    step: int
    attribute: str | None


class Aggregate(msgspec.Struct, frozen=True):
    """``function`` of a series: sum, avg, min, max, first or last."""

    function: str
    series: Series


class Count(msgspec.Struct, frozen=True):
    """Number of events that a step took."""

    step: int


class Operation(msgspec.Struct, frozen=True):
    """``operator`` of operands: arithmetic, a comparison, or ``and``, ``or``, ``not``."""

    operator: str
    operands: tuple[Expression, ...]


Expression = Constant | Series | Aggregate | Count | Operation


class Step(msgspec.Struct, frozen=True):
    """A named step: events that match ``leaf`` and satisfy ``where``, ``least`` to ``most`` of them.

    ``most`` is None if it is unbounded.
    """

    name: str
    leaf: Leaf
    where: Expression | None = None
    least: int = 1
    most: int | None = 1
    is_negated: bool = False


class Take(msgspec.Struct, frozen=True):
    """The events of one step, by its place among the steps."""

    step: int


class Absent(msgspec.Struct, frozen=True):
    """No event of a negated step, between the events around this place."""

    step: int


class Then(msgspec.Struct, frozen=True):
    """Parts one after the other; ``is_next[i]`` if part ``i + 1`` follows part ``i`` without an event between."""

    parts: tuple[Part, ...]
    is_next: tuple[bool, ...]


class Either(msgspec.Struct, frozen=True):
    """One of the parts."""

    parts: tuple[Part, ...]


class Both(msgspec.Struct, frozen=True):
    """All parts, one after the other in any order."""

    parts: tuple[Part, ...]


Part = Take | Absent | Then | Either | Both


class Reference(msgspec.Struct, frozen=True):
    """A mention of ``step`` at ``position``, in the condition of the step ``owner``, or with None in a detection."""

    owner: int | None
    step: int
    position: int


class Declaration(msgspec.Struct, frozen=True):
    """A whole pattern as it was read."""

    text: str
    name: str
    keys: tuple[str, ...]
    steps: tuple[Step, ...]
    root: Part
    within_us: int
    time_source: TimeSource
    time_attribute: str | None
    lateness_us: int
    selection: Selection
    subject: str
    emitted: tuple[tuple[str, Expression], ...]
    positions: tuple[int, ...]
    """Position in the text of the name of each step, for messages."""
    references: tuple[Reference, ...]
