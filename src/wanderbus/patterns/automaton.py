"""Automaton of a pattern: stages, the edges between them, and what is kept at run time (SPEC T-07).

A stage is one place of a step in the pattern; a step in a part of ``and`` has one for each order. A partial match is
at the stage of the last event that it took. Its open edges are bits of one integer: :data:`LOOP` for another event
of the same step, a bit for each edge, and a bit for each absence that has to hold until the end of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

LOOP: Final = 1
UNIT_BYTES: Final = 1_024
"""Bytes of values that one unit of size stands for (:attr:`Seen.units`)."""

_ITEM_BYTES: Final = 64
"""Size of an item of a list beside its text, in memory."""

EDGE_SHIFT: Final = 1
"""Bit of the first edge of a stage."""


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event as the automaton sees it.

    ``leaves`` has a bit for each step whose leaf it matches, and ``values`` the attributes that the pattern uses, in
    the order of :attr:`wanderbus.patterns.Pattern.attributes`, None where the event has none. ``time_us`` is the time
    by which the pattern goes, in microseconds since the Unix epoch. Events are ordered by ``(time_us, offset)``.
    """

    key: str
    time_us: int
    offset: int
    id: str
    leaves: int
    values: tuple[Any, ...]

    @property
    def units(self) -> int:
        """Its size in memory: one, and one for each full KiB of its key and its values."""
        return 1 + (_size(self.key) + sum(map(_size, self.values))) // UNIT_BYTES


def _size(value: Any) -> int:
    """Return about how many bytes a value takes in memory; texts take up to four for each character."""
    if isinstance(value, str):
        return len(value) * (1 if value.isascii() else 4)
    if isinstance(value, list):
        return sum([_ITEM_BYTES + _size(item) for item in value])
    return 0


class MatchNode(msgspec.Struct, frozen=True, gc=False):
    """The last event of a partial match with its step, and the events before.

    ``length`` is the number of them all, and ``units`` the sum of their sizes.
    """

    before: MatchNode | None
    step: int
    seen: Seen
    length: int
    units: int


def node_after(before: MatchNode | None, step: int, seen: Seen) -> MatchNode:
    """Return a partial match continued by an event, or begun by it."""
    if before is None:
        return MatchNode(None, step, seen, 1, seen.units)
    return MatchNode(before, step, seen, before.length + 1, before.units + seen.units)


Value = Callable[[MatchNode], Any]
"""Value of an expression over the events of a partial match; None if it is unknown."""


class Joint(msgspec.Struct, frozen=True):
    """The time between two events of a match: whether any event may lie there, and steps that must not occur."""

    is_next: bool = False
    absent: tuple[int, ...] = ()


class Edge(msgspec.Struct, frozen=True):
    """An edge to stage ``target``."""

    target: int
    joint: Joint


class Stage(msgspec.Struct, frozen=True):
    """One place of a step: its edges, and the ends of the pattern that are possible here."""

    place: int
    step: int
    least: int
    most: int | None
    edges: tuple[Edge, ...]
    ends: tuple[Joint, ...]
    """Joints before the end of the pattern; none if no match ends here."""
    uses: frozenset[int]
    """Steps to which conditions from here on refer."""

    @property
    def ends_at_once(self) -> bool:
        """True if a match ends with an event at this stage, without waiting for an absence."""
        return any(not joint.absent for joint in self.ends)

    @property
    def waits_for_end(self) -> bool:
        """True if a match that is here ends at the end of its time, if an absence holds until then."""
        return bool(self.ends) and not self.ends_at_once


class Automaton(msgspec.Struct, frozen=True):
    """All stages, and those at which a match begins."""

    stages: tuple[Stage, ...]
    starts: tuple[int, ...]


class Fragment(NamedTuple):
    """A part of an automaton under construction: its beginnings, its ends, and the ways through it without an event."""

    firsts: list[tuple[Joint, int]]
    lasts: list[tuple[int, Joint]]
    empties: list[Joint]


class Transition(NamedTuple):
    """A stage that an event may take a partial match to: by one of the edges ``bits``, if ``where`` is true."""

    bits: int
    stage: int
    step: int
    where: Value | None


class Denial(NamedTuple):
    """An event of the negated ``step``, which closes the edges ``bits`` if ``where`` is true."""

    bits: int
    step: int
    where: Value


class Cost(NamedTuple):
    """Units of work for a partial match: ``fixed``, and ``each`` for each unit of size of its events."""

    fixed: int
    each: int

    def plus(self, other: Cost) -> Cost:
        """Return the cost of both."""
        return Cost(self.fixed + other.fixed, self.each + other.each)

    def units(self, size: int) -> int:
        """Return the units for a partial match of this size."""
        return self.fixed + self.each * size


class Effect(NamedTuple):
    """The effect of an event on a partial match."""

    targets: tuple[Transition, ...]
    loop: Transition | None
    """Another event of the same step."""
    closes: int
    """Edges that the event closes in any case."""
    denials: tuple[Denial, ...]
    concerned: int
    """Edges of which one must be open for any of these."""
    cost: Cost
    """The most work that it may take, if one of them is open."""
