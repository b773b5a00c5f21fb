"""The one syntax tree to which every filter language parses (SPEC A-06, A-14; DESIGN 2.5, 7).

Nodes are plain immutable data. What they mean is in :mod:`wanderbus.filters.evaluate`, how they are read and
written in :mod:`wanderbus.filters.language`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
"""The comparisons of SPEC A-06."""

Operand = str | int | float | bool
"""What an attribute may be compared with."""


class Comparison(msgspec.Struct, frozen=True, eq=False):
    """``attribute operator value``; over a list attribute, some item of which this holds (SPEC A-16)."""

    attribute: str
    operator: Operator
    value: Operand

    def __eq__(self, other: object) -> bool:
        # Python holds True equal to 1; to a filter a Boolean is not a number (SPEC A-13).
        return isinstance(other, Comparison) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str, Operand, bool]:
        return self.attribute, self.operator, self.value, isinstance(self.value, bool)


class Not(msgspec.Struct, frozen=True):
    """True where ``operand`` is false, and unknown where it is unknown."""

    operand: Node


class And(msgspec.Struct, frozen=True):
    """True where every operand is; without operands always true."""

    operands: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True):
    """True where some operand is."""

    operands: tuple[Node, ...]


Node = Comparison | Not | And | Or

EVERYTHING: Final = And(())
"""The filter of a blank expression: every event of the subject."""
