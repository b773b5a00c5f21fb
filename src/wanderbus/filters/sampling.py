"""Sampling of values that fit a clause, and of events that fit a conjunction, for counterexamples (SPEC B-02).

Samples of an interval are its ends, their neighbours and a plain value between. For texts that have to end in or
contain others, some combinations are tried; a fitting text may be missed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any, Final

from wanderbus import limits
from wanderbus.event import Scalar, Value
from wanderbus.filters import clauses, regions
from wanderbus.filters.clauses import Terms, TooLarge
from wanderbus.filters.normal import AttributeFilter, Conjunction, Interval, Term, TextPattern

_FILLINGS: Final = ("", "a", "0", " ", "~", "\0")
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_NEAR: Final = (timedelta(0), timedelta(microseconds=1), timedelta(seconds=1), timedelta(days=1))
_OFFSET_MAX: Final = timedelta(hours=23, minutes=59)
_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**63 - 1


def values(terms: Terms) -> Iterator[Scalar]:
    """Yield some values for which ``terms`` hold, first one from each term's first interval."""
    rows = [_of_interval(term, each) for each_row in _rows(terms) for term, each in each_row]
    seen: set[tuple[type, Any]] = set()
    for value in _in_turn(rows):
        if (type(value), value) not in seen and _is_publishable(value) and clauses.holds(terms, value):
            seen.add((type(value), value))
            yield value


def attributes_of(conjunction: Conjunction, variations: int) -> Iterator[dict[str, Value]]:
    """Yield some events' attributes that fit the filters of ``conjunction``, at most ``variations``.

    Residuals are ignored. Nothing is yielded if no value is found for some attribute.
    """
    asked: dict[str, list[AttributeFilter]] = {}
    for each in conjunction.filters:
        asked.setdefault(each.attribute, []).append(each)
    choices: dict[str, list[Value]] = {}
    for attribute, filters in asked.items():
        if all(each.quantifier == "absent" for each in filters):
            continue
        choices[attribute] = list(islice(_of_attribute(filters), variations))
        if not choices[attribute]:
            return
    count = max((len(several) for several in choices.values()), default=1)
    for number in range(count):
        yield {attribute: several[number % len(several)] for attribute, several in choices.items()}


def _of_attribute(filters: list[AttributeFilter]) -> Iterator[Value]:
    """Yield values for which all of ``filters`` of one attribute hold: scalars if possible."""
    every = [each.terms for each in filters if each.quantifier == "all"]
    try:
        allowed = clauses.intersection(every)
        needed = [clauses.intersection((each.terms, allowed)) for each in filters if each.quantifier == "any"]
    except TooLarge:
        return
    if not needed:
        yield from values(allowed)
        yield []
        return
    if len(needed) == 1:
        yield from values(needed[0])
    pools = [list(islice(values(terms), 4)) for terms in needed]
    if all(pools) and len(pools) <= limits.EVENT_LIST_ITEMS_MAX:
        for number in range(max(map(len, pools))):
            yield [pool[number % len(pool)] for pool in pools]


def _rows(terms: Terms) -> Iterator[list[tuple[Term, Interval]]]:
    """Yield the first interval of each term, then the second of each, and so on."""
    longest = max((len(term.region) for term in terms), default=0)
    for place in range(longest):
        yield [(term, term.region[place]) for term in terms if place < len(term.region)]


def _in_turn(rows: Iterable[Iterator[Scalar]]) -> Iterator[Scalar]:
    """Yield the first of each row, then the second of each, and so on."""
    left = list(rows)
    while left:
        still: list[Iterator[Scalar]] = []
        for row in left:
            for value in row:
                yield value
                still.append(row)
                break
        left = still


def _of_interval(term: Term, each: Interval) -> Iterator[Scalar]:
    """Yield values in and beside the interval."""
    match term.kind:
        case _ if regions.is_point(each):
            yield each.low  # type: ignore[misc]
        case "boolean":
            yield from (False, True)
        case "number":
            yield from _numbers(each.low, each.high)
        case "date":
            yield from _dates(each.low, each.high)
        case "string":
            yield from _strings(each, term.patterns)


def _numbers(low: Any, high: Any) -> Iterator[int | float]:
    finite_low = low if low is not None and math.isfinite(low) else None
    finite_high = high if high is not None and math.isfinite(high) else None
    if finite_low is None and finite_high is None:
        yield 0
    if finite_low is not None:
        yield from _whole(math.floor(finite_low) + 1)
        yield finite_low
    if finite_high is not None:
        yield from _whole(math.ceil(finite_high) - 1)
        yield finite_high
    if finite_low is not None and finite_high is not None:
        yield finite_low / 2 + finite_high / 2
    for end in (low, high):
        if end is not None:
            yield end
            if (after := regions.follower(end)) is not None:
                yield after
            yield _before(end)
    yield from (-math.inf, math.inf)


def _whole(number: int) -> Iterator[int]:
    if _INTEGER_MIN <= number <= _INTEGER_MAX:
        yield number


def _before(number: int | float) -> int | float:
    """Return a number just below: the mirror image of the follower."""
    after = regions.follower(-number)
    return -math.inf if after is None else -after


def _dates(low: Any, high: Any) -> Iterator[datetime]:
    for end, sign in ((low, 1), (high, -1)):
        if end is not None:
            for step in _NEAR:
                with contextlib.suppress(OverflowError):
                    yield end + sign * step
            # The first and the last dates have no other neighbours.
            yield end.replace(tzinfo=timezone(-sign * _OFFSET_MAX))
    if low is None and high is None:
        yield _EPOCH


def _strings(each: Interval, patterns: tuple[TextPattern, ...]) -> Iterator[str]:
    low: Any = each.low
    high: Any = each.high
    wanted = [pattern for pattern in patterns if pattern.wanted]
    inner = [pattern.text for pattern in wanted if pattern.operator == "contains"]
    ending = max((pattern.text for pattern in wanted if pattern.operator == "suffix"), key=len, default="")
    for start in _starts(low, high):
        for filling in _FILLINGS:
            yield start + filling + filling.join(inner) + filling + ending
            yield start + filling + ending


def _starts(low: str | None, high: str | None) -> Iterator[str]:
    """Yield texts with which strings of the interval may begin, plain ones first."""
    if low is None:
        yield ""
    else:
        yield low
        yield low + "\0"
    if high is None:
        return
    yield high
    for at in range(len(high) - 1, -1, -1):
        code = ord(high[at]) - 1
        if code >= 0:
            lower = chr(code if not 0xD800 <= code < 0xE000 else 0xD7FF)
            yield high[:at] + lower
            yield high[:at] + lower + "\U0010ffff"
        yield high[:at]
        if len(high) - at > 8:
            return


def _is_publishable(value: Scalar) -> bool:
    """Return whether an event may hold ``value``: an integer of 64 bits, a text that can be encoded."""
    match value:
        case bool():
            return True
        case int():
            return _INTEGER_MIN <= value <= _INTEGER_MAX
        case str():
            return not any("\ud800" <= character <= "\udfff" for character in value)
        case _:
            return True
