"""Regions: sets of values of one kind, as intervals, on which normal forms are computed (DESIGN 7.2, SPEC B-02).

A region is a tuple of intervals, sorted, disjoint and with some value between any two; the empty set is the empty
tuple. Values are those that an event can hold (:func:`wanderbus.event.check_event`), so a kind is never dense: nothing
lies between 1.0 and the next double, nor between ``"a"`` and ``"a\0"``. Every set of values that comparisons can
distinguish is exactly one set of intervals, with one exception: past the end, ``> 1`` begins where ``>=
1.0000000000000002`` does.

Every operation takes linear time in its operands, and a union takes the time of sorting them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

from wanderbus.filters.normal import Interval

Region = tuple[Interval, ...]

EMPTY: Final[Region] = ()
WHOLE: Final[Region] = (Interval(None, None),)
"""Every value of the kind."""

_EXACT_MAX: Final = 2**52
"""Largest number up to which every integer is a double, and the next double is nearer than the next integer."""

_CHARACTER_MAX: Final = "\U0010ffff"
_BEFORE_SURROGATES: Final = "\ud7ff"
_AFTER_SURROGATES: Final = "\ue000"


def canonical(value: Any) -> Any:
    """Return the representative of all equal values in a normal form: 1 for 1.0, 0 for -0.0, a date in UTC."""
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC)
        except OverflowError:
            return value
    return value


def point(value: Any) -> Region:
    """Return the region of a single ``value``."""
    return (Interval(value, value),)


def interval(low: Any, high: Any, low_open: bool = False, high_open: bool = False) -> Region:
    """Return the region between ``low`` and ``high``; None is unbounded. It is empty if no value lies there."""
    if isinstance(low, bool) or isinstance(high, bool):
        return _of_booleans(low, high, low_open, high_open)
    if low is not None and high is not None:
        if low >= high:
            return point(low) if low == high and not (low_open or high_open) else EMPTY
        if (low_open or high_open) and _are_neighbours(low, high):
            return EMPTY if low_open and high_open else point(high if low_open else low)
    elif low is None and high is not None and _is_least(high):
        return EMPTY if high_open else point(high)
    if _is_least(low) and not low_open:
        low = None
    if high == math.inf and not high_open:
        if low == math.inf:
            return point(high)
        high = None
    if low == math.inf:
        return EMPTY if low_open else point(low)
    return (Interval(low, high, low_open and low is not None, high_open and high is not None),)


def prefixed(text: str) -> Region:
    """Return the strings that begin with ``text``."""
    return interval(text, after_prefix(text), high_open=True)


def after_prefix(text: str) -> str | None:
    """Return the least string above every one that begins with ``text``; None if there is none.

    The last character is incremented; the greatest character cannot be, and surrogates, which are no characters, are
    skipped.
    """
    kept = text.rstrip(_CHARACTER_MAX)
    if not kept:
        return None
    last = _AFTER_SURROGATES if kept[-1] == _BEFORE_SURROGATES else chr(ord(kept[-1]) + 1)
    return kept[:-1] + last


def union(*regions: Region) -> Region:
    """Return the values that are in some of ``regions``."""
    several = [region for region in regions if region]
    if len(several) < 2:
        return several[0] if several else EMPTY
    joined: list[Interval] = []
    for each in sorted(chain.from_iterable(several), key=_low_key):
        if joined and _meet(joined[-1], each):
            ends = max(joined[-1], each, key=_high_key)
            joined[-1:] = interval(joined[-1].low, ends.high, joined[-1].low_open, ends.high_open)
        else:
            joined.append(each)
    return tuple(joined)


def intersection(one: Region, other: Region) -> Region:
    """Return the values that are in both."""
    if one == WHOLE:
        return other
    if other == WHOLE or one == other:
        return one
    found: list[Interval] = []
    at_one = at_other = 0
    while at_one < len(one) and at_other < len(other):
        mine, yours = one[at_one], other[at_other]
        begins = max(mine, yours, key=_low_key)
        ends = min(mine, yours, key=_high_key)
        found += interval(begins.low, ends.high, begins.low_open, ends.high_open)
        if ends is mine:
            at_one += 1
        else:
            at_other += 1
    return tuple(found)


def complement(region: Region) -> Region:
    """Return the values of the kind that are not in ``region``."""
    if not region:
        return WHOLE
    found: list[Interval] = []
    low, low_open = None, False
    for each in region:
        if each.low is not None:
            found += interval(low, each.low, low_open, not each.low_open)
        low, low_open = each.high, not each.high_open
    if low is not None:
        found += interval(low, None, low_open)
    return tuple(found)


def difference(one: Region, other: Region) -> Region:
    """Return the values that are in ``one`` and not in ``other``."""
    return intersection(one, complement(other)) if other else one


def is_subset(one: Region, other: Region) -> bool:
    """Return whether everything in ``one`` is in ``other``."""
    if len(one) == 1 == len(other):
        return _includes(other[0], one[0])
    at = 0
    for each in one:
        # The last interval that begins no later; or the next, if no value lies between the two beginnings.
        at = bisect_right(other, _low_key(each), lo=max(at - 1, 0), key=_low_key)
        if not any(_includes(outer, each) for outer in other[max(at - 1, 0) : at + 1]):
            return False
    return True


def has(region: Region, value: Any) -> bool:
    """Return whether ``value``, of the region's kind, is in ``region``."""
    return any(_lies_in(each, value) for each in region)


def points(region: Region) -> Iterator[Any]:
    """Yield each value that is an interval by itself."""
    return (each.low for each in region if is_point(each))


def is_point(each: Interval) -> bool:
    """Return whether the interval has a single value."""
    return each.low is not None and each.high is not None and each.low == each.high


def shared_prefix(each: Interval) -> str:
    """Return the longest text with which every string of the interval is known to begin."""
    if not isinstance(each.low, str) or not isinstance(each.high, str):
        return ""
    length = next((at for at, (a, b) in enumerate(zip(each.low, each.high, strict=False)) if a != b), None)
    if length is None:
        return each.low  # the low end is a prefix of the high end
    if each.high_open and each.high == after_prefix(each.low[: length + 1]):
        length += 1
    return each.low[:length]


def follower(value: Any) -> Any:
    """Return the next value of the same kind, or None if there is none."""
    match value:
        case bool():
            return None if value else True
        case str():
            return value + "\0"
        case datetime():
            try:
                return value + timedelta(microseconds=1)
            except OverflowError:
                return None
        case _:
            return _next_number(value)


def _next_number(value: int | float) -> int | float | None:
    if -_EXACT_MAX < value < _EXACT_MAX:
        return math.nextafter(value, math.inf)
    if isinstance(value, float) and math.isinf(value):
        return None if value > 0 else math.nextafter(value, 0.0)
    try:
        double = float(value)
    except OverflowError:
        return math.inf if value > 0 else None
    above = double if double > value else math.nextafter(double, math.inf)
    whole = math.floor(value) + 1
    return min(above, whole) if -(2**63) <= whole < 2**63 else above


def _are_neighbours(low: Any, high: Any) -> bool:
    """Return whether nothing lies between ``low`` and the higher ``high``."""
    after = follower(low)
    return after is not None and bool(after >= high)


def _is_least(value: Any) -> bool:
    return bool(value == "" if isinstance(value, str) else value == -math.inf)


def _of_booleans(low: bool | None, high: bool | None, low_open: bool, high_open: bool) -> Region:
    within = [value for value in (False, True) if _lies_in(Interval(low, high, low_open, high_open), value)]
    return WHOLE if len(within) == 2 else tuple(Interval(value, value) for value in within)


def _lies_in(each: Interval, value: Any) -> bool:
    low: Any = each.low
    high: Any = each.high
    if low is not None and (value < low or (each.low_open and value == low)):
        return False
    return high is None or bool(value < high) or (not each.high_open and bool(value == high))


def _low_key(each: Interval) -> tuple[bool, Any, bool]:
    return each.low is not None, each.low, each.low_open


def _high_key(each: Interval) -> tuple[bool, Any, bool]:
    return each.high is None, each.high, not each.high_open


def _meet(before: Interval, after: Interval) -> bool:
    """Return whether no value lies between the two intervals, of which the first does not begin later."""
    high: Any = before.high
    low: Any = after.low
    if high is None or low is None or low < high:
        return True
    if low == high:
        return not (before.high_open and after.low_open)
    return not before.high_open and not after.low_open and _are_neighbours(high, low)


def _includes(outer: Interval, inner: Interval) -> bool:
    return _begins_no_later(outer, inner) and _ends_no_earlier(outer, inner)


def _begins_no_later(outer: Interval, inner: Interval) -> bool:
    mine: Any = outer.low
    yours: Any = inner.low
    if mine is None:
        return True
    if yours is None:
        return False
    if yours == mine:
        return inner.low_open or not outer.low_open
    return bool(yours > mine) or (inner.low_open and not outer.low_open and _are_neighbours(yours, mine))


def _ends_no_earlier(outer: Interval, inner: Interval) -> bool:
    mine: Any = outer.high
    yours: Any = inner.high
    if mine is None:
        return True
    if yours is None:
        return False
    if yours == mine:
        return inner.high_open or not outer.high_open
    return bool(yours < mine) or (inner.high_open and not outer.high_open and _are_neighbours(mine, yours))
