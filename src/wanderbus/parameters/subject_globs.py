"""Patterns of subjects, as in file names: ``*`` is any text, ``?`` one character, ``[...]`` one of a set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import cache


def any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """Return an expression that matches each subject of one of the patterns; None if there is no pattern."""
    return re.compile("|".join(map(translate, patterns))) if patterns else None


def overlap(one: str, other: str) -> bool:
    """Return whether some subject may match both patterns; a set of characters counts as any character."""

    @cache
    def meets(place: int, other_place: int) -> bool:
        left, right = one[place:], other[other_place:]
        if not left or not right:
            return not (left + right).strip("*")
        if left[0] == "*":
            return meets(place + 1, other_place) or meets(place, other_place + 1)
        if right[0] == "*":
            return meets(place, other_place + 1) or meets(place + 1, other_place)
        if "[" in (left[0], right[0]):
            return True
        same = left[0] == right[0] or "?" in (left[0], right[0])
        return same and meets(place + 1, other_place + 1)

    return meets(0, 0)
