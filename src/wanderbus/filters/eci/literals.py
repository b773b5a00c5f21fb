"""Literals of the language: numbers, dates and quoted text.

Each function takes one token and raises :class:`FilterError` with the position in it.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

from wanderbus.errors import FilterError
from wanderbus.filters.eci.words import ESCAPES
from wanderbus.literals import integer

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_LIKE_A_DATE: Final = re.compile(r"[0-9]{4}-[0-9]")
_DATE: Final = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?P<time>[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?P<fraction>\.[0-9]+)?(?P<offset>[Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
_UNICODE: Final = re.compile("[0-9a-fA-F]{4}")


def number_or_date(token: str) -> int | float | datetime:
    """Return the value of a ``token`` that starts with a digit or a sign."""
    if _INTEGER.fullmatch(token):
        return _integer(token)
    if _FLOAT.fullmatch(token):
        value = float(token)
        if math.isinf(value):
            raise FilterError("this number is too large", token, 0)
        return value
    if token in ("+inf", "-inf"):
        return float(token)
    if _LIKE_A_DATE.match(token):
        return _date(token)
    raise FilterError(f"{shown(token)} is not a number; put it in quotes if it is text", token, 0)


def _integer(token: str) -> int:
    try:
        return integer(token)
    except ValueError as error:
        raise FilterError(str(error), token, 0) from None


def _date(token: str) -> datetime:
    found = _DATE.fullmatch(token)
    if found is None:
        raise FilterError(
            f"{shown(token)} is not a date; write it as 2026-11-21T10:00:00Z, or in quotes if it is text", token, 0
        )
    if found["time"] is None:
        token += "T00:00:00Z"
    elif found["offset"] is None:
        raise FilterError("a date with a time needs its offset, such as Z or +02:00", token, len(token))
    if len(found["fraction"] or "") > 7:
        raise FilterError("a date has at most six digits of a second", token, found.start("fraction") + 7)
    try:
        value = datetime.fromisoformat(token.upper())
    except ValueError:
        raise FilterError(f"there is no date {shown(token)}", token, 0) from None
    # A zone of offset zero prints and compares like UTC, and is faster as the same object.
    return value.replace(tzinfo=UTC) if value.utcoffset() == UTC.utcoffset(None) else value


def unquoted(token: str) -> str:
    """Return the text of a ``token`` in quotes of whatever kind."""
    if "\\" not in token:
        return token[1:-1]
    parts: list[str] = []
    at, last = 1, len(token) - 1
    while (slash := token.find("\\", at, last)) >= 0:
        escaped = token[slash + 1]
        parts.append(token[at:slash])
        if escaped == "u":
            parts.append(_character(token, slash))
            at = slash + 6
        elif escaped in ESCAPES:
            parts.append(ESCAPES[escaped])
            at = slash + 2
        else:
            raise FilterError(f"unknown escape \\{escaped}; write \\\\ for a backslash", token, slash)
    return "".join(parts) + token[at:last]


def _character(token: str, slash: int) -> str:
    digits = _UNICODE.fullmatch(token, slash + 2, min(slash + 6, len(token) - 1))
    if digits is None:
        raise FilterError("\\u needs four hexadecimal digits", token, slash)
    character = chr(int(digits[0], 16))
    if "\ud800" <= character <= "\udfff":
        raise FilterError("half a character (a lone surrogate)", token, slash)
    return character


def shown(token: str) -> str:
    """Return the token as an error message shows it, cut if it is long."""
    text = token if len(token) <= 40 else token[:37] + "..."
    return text if text[:1] in ('"', "'", "`") else f"'{text}'"
