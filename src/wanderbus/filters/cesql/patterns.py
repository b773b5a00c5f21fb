"""The patterns of LIKE (CESQL 1.0.0, 3.4.3).

``%`` matches any number of characters and ``_`` matches one, unless a backslash precedes it; everything else matches
itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_MARK: Final = re.compile(r"\\([%_])|(%)|(_)|(.)", re.DOTALL)

Piece = tuple[str | None, ...]
"""Consecutive characters; None matches any one."""


def pieces(pattern: str) -> tuple[Piece, ...]:
    """Return the pieces before, between and after the ``%`` of ``pattern``."""
    found: list[list[str | None]] = [[]]
    for escaped, several, one, character in _MARK.findall(pattern):
        if several:
            found.append([])
        else:
            found[-1].append(None if one else escaped or character)
    return tuple(map(tuple, found))


def sought(pattern: str) -> int:
    """Return how many characters of ``pattern`` are between two ``%``, and so may occur anywhere in a value."""
    return sum(map(len, pieces(pattern)[1:-1]))


def eighths(pattern: str) -> int:
    """Return the work of matching ``pattern`` for each character of a value, in eighths of a unit."""
    is_plain = all(None not in piece for piece in pieces(pattern))
    return 8 if is_plain else 12 + 3 * sought(pattern)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return whether a value is LIKE ``pattern``, as a function; without a ``_`` it takes linear time."""
    several = pieces(pattern)
    if any(None in piece for piece in several):
        match = compiled(pattern).fullmatch
        return lambda value: match(value) is not None
    first, *others = ("".join(each or "" for each in piece) for piece in several)
    if not others:
        return first.__eq__
    *middle, last = others

    def matches(value: str) -> bool:
        if not value.startswith(first):
            return False
        at = len(first)
        for piece in middle:
            found = value.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return len(value) - len(last) >= at and value.endswith(last)

    return matches


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression that fully matches the values that are LIKE ``pattern``.

    Each piece between two ``%`` is fixed at its first occurrence; so no match takes longer than the product of both
    lengths.
    """
    first, *others = ("".join("." if each is None else re.escape(each) for each in piece) for piece in pieces(pattern))
    if others:
        middle = "".join(f"(?>.*?{piece})" for piece in others[:-1] if piece)
        first += f"{middle}.*{others[-1]}"
    return re.compile(first, re.DOTALL)
