"""Exact text forms of values, shared by the XML and the JSON of events (SPEC A-13, O-01, U-04).

They are those of XML Schema: `xs:long`, `xs:double` (the shortest text that reads back as the same number, ``INF``
and ``-INF``), ``true`` and ``false``, and `xs:dateTime` with at most six digits of a second. A String is its own text.
NaN has no text, since it equals no value. A Date is an instant: it is read with any offset, and written in UTC
(decision 0133).
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import msgspec

from wanderbus.event import Scalar, TypeName

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_INTEGER_DIGITS_MAX: Final = 19
"""Digits of a 64-bit integer without leading zeros; Python refuses to parse some thousands of digits."""

_MINUTE: Final = timedelta(minutes=1)
_OFFSET_MAX: Final = timedelta(hours=14)
"""Largest offset from UTC in XML Schema; no place on Earth exceeds it."""


def type_name(value: object) -> TypeName:
    """Return the type of ``value``; :class:`ValueError` if it is none of the five."""
    match value:
        case bool():
            return "Boolean"
        case int():
            return "Integer"
        case float():
            return "Double"
        case str():
            return "String"
        case datetime():
            return "Date"
    raise ValueError(f"a value of type {type(value).__name__}; use str, int, float, bool or datetime")


def to_text(value: Scalar) -> str:
    """Return the text of ``value``; :class:`ValueError` if it has none."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return _integer_text(value)
        case float():
            return _double_text(value)
        case datetime():
            return _date_text(value)


def from_text(name: TypeName, text: str) -> Scalar:
    """Return the value of type ``name`` in ``text``; :class:`ValueError` with the reason if there is none."""
    match name:
        case "String":
            return text
        case "Integer":
            return integer(text)
        case "Double":
            return _double(text)
        case "Boolean":
            if text not in ("true", "false"):
                raise ValueError("a Boolean must be 'true' or 'false'")
            return text == "true"
        case "Date":
            return _date(text)


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in ``text``; :class:`ValueError` with the reason if there is none.

    An object with a repeated member is refused: most JSON parsers drop all but one of its values (RFC 8259, 4).
    """
    try:
        members = msgspec.json.decode(text, type=dict[str, Any])
        json.loads(text, object_pairs_hook=_check_members)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return members


def _check_members(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        repeated = next(name for place, name in enumerate(names) if name in names[:place])
        raise ValueError(f"the member {repeated!r} occurs more than once; write its values as a list")


def _integer_text(value: int) -> str:
    if not -(2**63) <= value < 2**63:
        raise ValueError("an integer beyond 64 bits")
    return str(value)


def _double_text(value: float) -> str:
    if math.isnan(value):
        raise ValueError("NaN, which compares with nothing")
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(value)


def _date_text(value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError("a date without a time zone; give it one")
    text = in_utc(value).isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def in_utc(value: datetime) -> datetime:
    """Return the same instant in UTC; on the first and the last possible day, in the nearest usable zone."""
    offset = value.utcoffset()
    if not offset:
        return value
    nearest = min(max(offset // _MINUTE * _MINUTE, -_OFFSET_MAX), _OFFSET_MAX)
    for writable in (timedelta(0), nearest, min(nearest + _MINUTE, _OFFSET_MAX)):
        try:
            # astimezone() is not possible, because it converts by way of UTC.
            return value.replace(tzinfo=timezone(writable) if writable else UTC) + (writable - offset)
        except OverflowError:
            continue
    raise ValueError("a date beyond the years 1 to 9999")


def integer(text: str) -> int:
    """Return the Integer in ``text``; :class:`ValueError` with the reason if there is none."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("an Integer must be written in digits")
    digits = text.lstrip("+-").lstrip("0") or "0"
    value = int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else 2**64
    value = -value if text.startswith("-") else value
    if not -(2**63) <= value < 2**63:
        raise ValueError("this integer is beyond 64 bits")
    return value


def _double(text: str) -> float:
    if text in ("INF", "-INF"):
        return float(text)
    if not _DOUBLE.fullmatch(text):
        raise ValueError("a Double must be written as 4.5, 1e-3 or INF")
    value = float(text)
    if math.isinf(value):
        raise ValueError("this number is too large; write infinity as INF")
    return value


def _date(text: str) -> datetime:
    if not _DATE.fullmatch(text):
        raise ValueError("a Date must be written as 2026-11-21T10:00:00Z, with its offset from UTC")
    if not text.endswith("Z") and (text[-5:] > "14:00" or text[-2:] > "59"):
        raise ValueError("an offset from UTC is at most 14:00")
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError as error:
        raise ValueError(f"no such date: {error}") from None
