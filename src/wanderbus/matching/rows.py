"""Rows of a filter: conjunctions of clauses, each a union of pieces of the possible values (DESIGN 7.2, 7.4).

Wherever a filter is true, some row of it holds: every clause of the row holds by some of its pieces. A piece is a plain
tuple ``(name, kind, low, high)``:

======== ==============================================================================================================
kind     holds for
======== ==============================================================================================================
PRESENCE the attribute as such, from ``low`` to ``high`` among MISSING, PRESENT and EMPTY
BOOLEAN  a boolean as a double, 0.0 or 1.0, from ``low`` to ``high``
NUMBER   a number as a double, from ``low`` to ``high``; infinite if there is no end. A fifth part, of ``OPEN_LOW``
         and ``OPEN_HIGH``, marks each end for which the double before it is given, itself not included
DATE     a date in microseconds since the Unix epoch, as a number
WORD     the string ``low``, which equals ``high``; if ``high`` is None, any string that the tuple ``low`` lacks
ORDER    the strings from ``low`` to ``high``, None if there is no end; ``low_open`` and ``high_open`` follow: whether
         each end is excluded
======== ==============================================================================================================

For a list, a piece of any kind but PRESENCE holds if it holds for some item, for each clause separately. A value
without a kind is PRESENT and nothing else. An integer or a date that is not a double counts as above the lower double
around it and below the higher: so it lies within an open end whose double is the further one.

All pieces of a clause are about one attribute; nearly always they are also of one kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from wanderbus.filters import regions
from wanderbus.filters.ast import And, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.evaluate import comparable, item_holds
from wanderbus.filters.normal import AttributeFilter, Conjunction, Interval, Kind, NormalForm
from wanderbus.filters.normalising import normal_form
from wanderbus.filters.sizes import has_questions
from wanderbus.matching.layout import OPEN_HIGH, OPEN_LOW
from wanderbus.work import WorkBudget

PRESENCE, BOOLEAN, NUMBER, DATE, WORD, ORDER = range(6)

MISSING, PRESENT, EMPTY = 0.0, 1.0, 2.0
"""States of an attribute in an event: missing, present, or present as a list without items."""

ROWS_MAX: Final = 16
"""Largest number of rows read directly off a tree; beyond it, the normal form finds fewer."""

SPLIT_MAX: Final = 4
"""Largest number of rows into which a clause of several kinds is split."""

NEEDED_MAX: Final = 8
"""Largest number of rows for what residuals need; beyond it, the other filters of the conjunction find the residual."""

NORMALISED_QUESTIONS_MAX: Final = 48
"""Largest number of questions in a tree that is normalised; for a larger tree, what all of it needs is indexed."""

NORMALISED_ROWS_MAX: Final = 32
"""Largest number of conjunctions of that normal form; beyond it, filters are evaluated."""

NORMALISED_WORK_MAX: Final = 1_000_000
"""Units of work for the normal form of a filter; beyond it, what all of it needs is indexed."""

PIECES_MAX: Final = 2_048
"""Largest number of pieces in all rows of a normal form; beyond it, what all of it needs is indexed."""

CLAUSES_MAX: Final = 64
"""Largest number of clauses in all rows read off a tree; beyond it, what all of it needs is indexed."""

CLAUSES_NEEDED_MAX: Final = 16
"""Largest number of clauses in the row of what a filter needs."""

_GREATEST: Final = math.nextafter(math.inf, 0.0)

Piece = tuple[Any, ...]
Clause = list[Piece]
Row = list[Clause]


class FilterRows(NamedTuple):
    """The rows of a filter, none if it is never true; an empty row always holds."""

    rows: list[Row]
    is_exact: bool
    """True if the filter is true wherever a row holds, for events without lists."""
    is_exact_on_lists: bool
    """The same for events with lists."""


class _NotPlain(Exception):
    """The tree cannot be read off directly; it is normalised."""


def rows_of(root: Node) -> FilterRows:
    """Return the rows of the filter with this tree."""
    try:
        rows = _plain_rows(root)
    except _NotPlain:
        pass
    else:
        return FilterRows(rows, True, True) if sum(map(len, rows)) <= CLAUSES_MAX else _needed_row(root)
    if has_questions(root, NORMALISED_QUESTIONS_MAX):
        return _needed_row(root)
    work = WorkBudget(NORMALISED_WORK_MAX)
    form = normal_form(root, NORMALISED_ROWS_MAX, work)
    if not work.left:
        return _needed_row(root)
    found = _from_normal_form(root, form)
    if not all(found.rows):  # an empty row matches every event: other rows would only cost time
        return FilterRows([[]], found.is_exact, found.is_exact_on_lists)
    pieces = sum(len(clause) for row in found.rows for clause in row)
    return found if pieces <= PIECES_MAX else _needed_row(root)


def microseconds(value: datetime) -> int:
    """Return the time of a date since the Unix epoch."""
    since = comparable(value, "date")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds  # type: ignore[no-any-return]


def doubles_around(end: Any) -> tuple[float, float]:
    """Return the last double up to a number or date, and the first double from it on: the same if it is a double."""
    value = microseconds(end) if isinstance(end, datetime) else end
    try:
        near = float(value)
    except OverflowError:
        return (_GREATEST, math.inf) if value > 0 else (-math.inf, -_GREATEST)
    if near == value:
        return near, near
    return (near, math.nextafter(near, math.inf)) if near < value else (math.nextafter(near, -math.inf), near)


# Comparisons under `and` and `or`, read directly off the tree --------------------------------------------------------


def _plain_rows(node: Node) -> list[Row]:
    if type(node) is And:
        return _every(node.operands)
    if type(node) is Or:
        return _some(node.operands)
    return [[_question(node)]]


def _every(operands: Sequence[Node]) -> list[Row]:
    row: Row = []
    rows = [row]
    several = []
    for each in operands:
        if type(each) is And or type(each) is Or:
            several.append(_plain_rows(each))
        else:
            row.append(_question(each))
    for others in several:
        if len(rows) * len(others) > ROWS_MAX:
            raise _NotPlain
        rows = [one + other for one in rows for other in others]
    return rows


def _some(operands: Sequence[Node]) -> list[Row]:
    """Return the rows of each operand; operands that ask one kind of one attribute only share a single row."""
    rows: list[Row] = []
    alone: dict[tuple[str, int], Row] = {}
    for each in operands:
        for row in _plain_rows(each):
            if len(row) == 1:
                known = alone.setdefault(row[0][0][:2], row)
                if known is not row:
                    known[0] = known[0] + row[0]  # a new clause: the old one may be part of other rows
                    continue
            rows.append(row)
    if len(rows) > ROWS_MAX:
        raise _NotPlain
    return rows


def _question(node: Node) -> Clause:
    """Return the clause; all its pieces are of one kind."""
    if type(node) is Quantified and node.quantifier == "any":
        condition = node.clause
        if type(condition) is Predicate:
            return _compared(node.attribute, condition.operator, condition.operand)
        if type(condition) is And and condition.operands:
            return _range(node.attribute, condition.operands)
    elif type(node) is Exists:
        return [(node.attribute, PRESENCE, PRESENT, EMPTY)]
    elif type(node) is Not and type(node.operand) is Exists:
        return [(node.operand.attribute, PRESENCE, MISSING, MISSING)]
    raise _NotPlain


def _range(name: str, conditions: Sequence[Any]) -> Clause:
    """Return where all of some comparisons of a number or date are true."""
    found: Piece = ()
    for each in conditions:
        if type(each) is not Predicate:
            raise _NotPlain
        pieces = _compared(name, each.operator, each.operand)
        piece = pieces[0]
        kind = piece[1]
        if len(pieces) > 1 or (kind != NUMBER and kind != DATE):
            raise _NotPlain
        if found and kind != found[1]:
            raise _NotPlain
        found = _both(found, piece) if found else piece
    if found[2] > found[3]:
        raise _NotPlain
    return [found]


def _both(one: Piece, other: Piece) -> Piece:
    """Return the intersection of two ranges; at one double, a closed end is tighter than an open one."""
    name, kind, low, high, opens = one
    _, _, other_low, other_high, other_opens = other
    open_low = opens if low > other_low else other_opens if low < other_low else opens & other_opens
    open_high = opens if high < other_high else other_opens if high > other_high else opens & other_opens
    return name, kind, max(low, other_low), min(high, other_high), open_low & OPEN_LOW | open_high & OPEN_HIGH


def _compared(name: str, operator: str, operand: Any) -> Clause:
    type_ = type(operand)
    if type_ is str:
        compared = _OF_TEXT.get(operator)
        if compared is None or not operand:
            raise _NotPlain
        return compared(name, operand)
    if type_ is int or type_ is float:
        kind, number = NUMBER, operand
    elif type_ is datetime and operand.utcoffset() is not None:
        kind, number = DATE, microseconds(operand)
    elif type_ is tuple and operator == "in":
        return _among(name, operand)
    elif type_ is bool and operator == "==":
        kind, number = BOOLEAN, operand
    else:
        raise _NotPlain
    made = _OF_NUMBER.get(operator)
    if made is None or not -_EXACT_MAX <= number <= _EXACT_MAX:
        raise _NotPlain
    return made(name, kind, float(number))


def _among(name: str, operands: Sequence[Any]) -> Clause:
    pieces = [piece for each in operands for piece in _compared(name, "==", each)]
    if len({piece[1] for piece in pieces}) != 1:
        raise _NotPlain
    return pieces


def _prefixed(name: str, text: str) -> Piece:
    after = regions.after_prefix(text)
    return name, ORDER, text, after, False, after is not None


_EXACT_MAX: Final = 2**53
"""Largest number up to which every integer is a double."""

_OF_NUMBER: Final[Mapping[str, Callable[[str, int, float], Clause]]] = {
    "==": lambda name, kind, end: [(name, kind, end, end, 0)],
    ">=": lambda name, kind, end: [(name, kind, end, math.inf, 0)],
    "<=": lambda name, kind, end: [(name, kind, -math.inf, end, 0)],
    ">": lambda name, kind, end: [(name, kind, math.nextafter(end, math.inf), math.inf, OPEN_LOW)],
    "<": lambda name, kind, end: [(name, kind, -math.inf, math.nextafter(end, -math.inf), OPEN_HIGH)],
    "!=": lambda name, kind, end: [
        (name, kind, -math.inf, math.nextafter(end, -math.inf), OPEN_HIGH),
        (name, kind, math.nextafter(end, math.inf), math.inf, OPEN_LOW),
    ],
}

_OF_TEXT: Final[Mapping[str, Callable[[str, str], Clause]]] = {
    "==": lambda name, text: [(name, WORD, text, text)],
    "!=": lambda name, text: [(name, WORD, (text,), None)],
    ">=": lambda name, text: [(name, ORDER, text, None, False, False)],
    "<=": lambda name, text: [(name, ORDER, None, text, False, False)],
    ">": lambda name, text: [(name, ORDER, text, None, True, False)],
    "<": lambda name, text: [(name, ORDER, None, text, False, True)],
    "prefix": lambda name, text: [_prefixed(name, text)],
}
"""Kinds of texts that are not empty."""


# All other trees
# -------------------------------------------------------------------------------------------------------


def _from_normal_form(root: Node, form: NormalForm) -> FilterRows:
    questions = list(_questions(root, True))
    if any(item_holds(each.clause, None) is wanted for each, wanted in questions):
        return FilterRows([[]], False, False)  # a value without a kind suffices, and normal forms omit those
    asked = {each.attribute for each, _ in questions}
    rows: list[Row] = []
    is_exact = is_exact_on_lists = True
    for conjunction in form:
        parts = [_part(each) for each in conjunction.filters]
        # The form requires that every value of every kind exists; the filter may require nothing of a value without a
        # kind.
        is_exact &= all(says_all for _, says_all in parts) and not conjunction.residuals
        is_exact &= not any(each.quantifier == "exists" and each.attribute in asked for each in conjunction.filters)
        is_exact_on_lists &= not any(each.quantifier == "all" for each in conjunction.filters)
        row = [clause for clause, _ in parts]
        rows += [row + needed for needed in _needed(conjunction)]
    return FilterRows(_split(rows), is_exact, is_exact and is_exact_on_lists)


def _needed_row(root: Node) -> FilterRows:
    """Return a row of some clauses that hold wherever the filter is true; its matches are evaluated."""
    row: Row = []
    for each in root.operands if isinstance(root, And) else (root,):
        try:
            row.append(_question(each))
        except _NotPlain:
            continue
        if len(row) == CLAUSES_NEEDED_MAX:
            break
    return FilterRows([row], False, False)


def _questions(node: Node, wanted: bool) -> Iterator[tuple[Quantified, bool]]:
    """Yield all questions, each with the answer to it that may give ``node`` the truth value ``wanted``."""
    match node:
        case Quantified():
            yield node, wanted
        case Not(operand=operand):
            yield from _questions(operand, not wanted)
        case And(operands=operands) | Or(operands=operands):
            for each in operands:
                yield from _questions(each, wanted)


def _needed(conjunction: Conjunction) -> list[Row]:
    """Return rows of which at least one holds wherever all residuals hold."""
    found: list[Row] = [[]]
    for node in conjunction.residuals:
        if isinstance(node, Residual):
            needed = rows_of(node.needed).rows
            if len(needed) * len(found) <= NEEDED_MAX:
                found = [one + other for one in found for other in needed]
    return found


def _split(rows: list[Row]) -> list[Row]:
    """Return rows equivalent to ``rows``, with clauses of one kind each if that is cheap."""
    for number, row in enumerate(rows):
        for at, clause in enumerate(row):
            kinds = sorted({piece[1] for piece in clause})
            if 1 < len(kinds) <= SPLIT_MAX + 1 - len(rows):
                each = [[*row[:at], [piece for piece in clause if piece[1] == kind], *row[at + 1 :]] for kind in kinds]
                return _split([*rows[:number], *each, *rows[number + 1 :]])
    return rows


def _part(asked: AttributeFilter) -> tuple[Clause, bool]:
    """Return the clause, and whether it is exact."""
    name = asked.attribute
    match asked.quantifier:
        case "exists":
            return [(name, PRESENCE, PRESENT, EMPTY)], True
        case "absent":
            return [(name, PRESENCE, MISSING, MISSING)], True
        case quantifier:
            clause: Clause = [(name, PRESENCE, EMPTY, EMPTY)] if quantifier == "all" else []
            says_all = not any(term.patterns for term in asked.terms)
            for kind in dict.fromkeys(term.kind for term in asked.terms):
                region = regions.union(*(term.region for term in asked.terms if term.kind == kind))
                pieces, is_exact = _of_region(name, kind, region)
                clause += pieces
                says_all &= is_exact
            return clause, says_all


def _of_region(name: str, kind: Kind, region: regions.Region) -> tuple[Clause, bool]:
    """Return the pieces, and whether they are exact."""
    match kind:
        case "string":
            return _strings(name, region), True
        case "boolean":
            return [_booleans(name, each) for each in region], True
        case "number" | "date":
            spans = [_span(name, NUMBER if kind == "number" else DATE, each) for each in region]
            return [piece for piece, _ in spans], all(is_exact for _, is_exact in spans)


def _strings(name: str, region: regions.Region) -> Clause:
    if all(map(regions.is_point, region)):
        return [(name, WORD, each.low, each.low) for each in region]
    holes = regions.complement(region)
    if all(map(regions.is_point, holes)):
        return [(name, WORD, tuple([each.low for each in holes]), None)]
    return [_ordered(name, each) for each in region]


def _ordered(name: str, each: Interval) -> Piece:
    return name, ORDER, each.low, each.high, each.low_open, each.high_open


def _booleans(name: str, each: Interval) -> Piece:
    low: Any = each.low
    high: Any = each.high
    return name, BOOLEAN, 0.0 if low is None else float(low), 1.0 if high is None else float(high), 0


def _span(name: str, kind: int, each: Interval) -> tuple[Piece, bool]:
    """Return the doubles of an interval, and whether it contains exactly these."""
    low, above = (-math.inf, -math.inf) if each.low is None else doubles_around(each.low)
    below, high = (math.inf, math.inf) if each.high is None else doubles_around(each.high)
    if low < above or below < high:
        return (name, kind, low, high, 0), False
    begin = math.nextafter(low, math.inf) if each.low_open else low
    end = math.nextafter(high, -math.inf) if each.high_open else high
    if begin > end:  # there are integers between two doubles
        return (name, kind, low, high, 0), False
    opens = (OPEN_LOW if each.low_open else 0) | (OPEN_HIGH if each.high_open else 0)
    return (name, kind, begin, end, opens), True
