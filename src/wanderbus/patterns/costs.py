"""Estimated work of the automaton for one event, counted before the event is processed (SPEC T-07, U-02).

The work for a partial match is linear in the size of its events: a condition looks for the events of its steps among
them. One unit is about 10 ns on the reference machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from wanderbus.patterns.automaton import Cost
from wanderbus.patterns.tree import Aggregate, Count, Expression, Operation, Series

EVENT: Final = 1_000
"""Units of an event by itself: its place in the order, and the stages at which it begins a match."""

ENTRY: Final = 300
"""Units of each target in a table of reactions that is made."""

WAITING: Final = 30
"""Units of each event that waits for a key, to be ordered again in a turn."""

LOOK: Final = 30
"""Units of a partial match that an event does not concern."""

_CONTINUE: Final = 280
"""Units of a partial match that is continued or complete."""

REDUCE: Final = 90
"""Units of each partial match of a key, to reduce those with one future to one."""

COMPARE: Final = 25
"""Units for each event of a partial match that is compared with others."""

_OPERATION: Final = 25
"""Units of one operand, operation or function of an expression."""

_SEARCH: Final = 3
"""Units for each event among which the last one of a step is looked for."""

_GATHER: Final = 22
"""Units for each event among which a function gathers those of its step."""


FREE: Final = Cost(0, 0)
EMPTY_DETECTION: Final = Cost(2_500, 60)
"""Cost of a detection without values: its record with the names of its events, and its notification."""


def cost_of(expression: Expression | None) -> Cost:
    """Return the cost of an expression over the events of a partial match."""
    match expression:
        case Operation(operands=operands):
            return total(map(cost_of, operands)).plus(Cost(_OPERATION * len(operands), 0))
        case Series():
            return Cost(_OPERATION, _SEARCH)
        case Aggregate() | Count():
            return Cost(2 * _OPERATION, _GATHER)
        case None:
            return FREE
        case _:
            return Cost(_OPERATION, 0)


def reaction_cost(taken: Iterable[int], denied: Iterable[int], conditions: Sequence[Cost]) -> Cost:
    """Return the cost of a partial match that an event may continue in the steps ``taken``, and end by ``denied`` ones.

    ``conditions`` has the cost of the condition of each step.
    """
    found = [conditions[step].plus(Cost(_CONTINUE, COMPARE)) for step in taken]
    return total([*found, *(conditions[step] for step in denied)])


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    found = FREE
    for each in costs:
        found = found.plus(each)
    return found
