"""Reading of Spark's binary VARIANT: the values that :mod:`wanderbus.pipeline.source.variants` writes (SPEC A-13)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1)
_FURTHEST: Final = timedelta(hours=14)
_DICTIONARIES_MAX: Final = 4_096

_OBJECT: Final = 2
_INT8, _INT16, _INT32, _INT64 = (struct.Struct(form) for form in ("<b", "<h", "<i", "<q"))
_DOUBLE, _UINT32 = struct.Struct("<d"), struct.Struct("<I")


def attributes_of(value: bytes, metadata: bytes) -> dict[str, Any]:
    """Return the attributes of a variant object; ``ValueError`` if it is none, or has a value of no type."""
    try:
        if value[0] & 3 != _OBJECT:
            raise ValueError("it is not an object")
        names = _names(metadata)
        header = value[0] >> 2
        offset_bytes, id_bytes = (header & 3) + 1, (header >> 2 & 3) + 1
        count, at = _count(value, 1, header >> 4 & 1)
        offsets = at + count * id_bytes
        items = offsets + (count + 1) * offset_bytes
        return {
            names[_number(value, at + place * id_bytes, id_bytes)]: _value(
                value, items + _number(value, offsets + place * offset_bytes, offset_bytes)
            )
            for place in range(count)
        }
    except (IndexError, struct.error):
        raise ValueError("it ends too early") from None


def instant_of(at_us: int) -> datetime:
    """Return the instant in UTC; at the ends of the calendar, in a zone that has it."""
    since = timedelta(microseconds=at_us)
    for offset in (timedelta(0), _FURTHEST, -_FURTHEST):
        try:
            return (_EPOCH + (since + offset)).replace(tzinfo=UTC if not offset else timezone(offset))
        except OverflowError:
            continue
    raise ValueError(f"{at_us} µs since 1970 is beyond the years 1 to 9999")


@lru_cache(_DICTIONARIES_MAX)
def _names(metadata: bytes) -> tuple[str, ...]:
    width = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, width)
    places = [_number(metadata, 1 + width * (1 + each), width) for each in range(count + 1)]
    texts = metadata[1 + width * (count + 2) :]
    return tuple(texts[begin:end].decode() for begin, end in pairwise(places))


def _value(data: bytes, at: int) -> Any:
    header = data[at] >> 2
    match data[at] & 3:
        case 0:  # primitive
            read = _PRIMITIVES.get(header)
            if read is None:
                raise ValueError(f"it has a value of type {header}, which no attribute has")
            return read(data, at + 1)
        case 1:  # short text
            return data[at + 1 : at + 1 + header].decode()
        case 3:  # array
            width = (header & 3) + 1
            count, offsets = _count(data, at + 1, header >> 2 & 1)
            items = offsets + (count + 1) * width
            return [_value(data, items + _number(data, offsets + each * width, width)) for each in range(count)]
    raise ValueError("it has an object within an object")


def _long_text(data: bytes, at: int) -> str:
    return data[at + 4 : at + 4 + _UINT32.unpack_from(data, at)[0]].decode()


_PRIMITIVES: Final[Mapping[int, Callable[[bytes, int], Any]]] = {
    1: lambda data, at: True,
    2: lambda data, at: False,
    3: lambda data, at: _INT8.unpack_from(data, at)[0],
    4: lambda data, at: _INT16.unpack_from(data, at)[0],
    5: lambda data, at: _INT32.unpack_from(data, at)[0],
    6: lambda data, at: _INT64.unpack_from(data, at)[0],
    7: lambda data, at: _DOUBLE.unpack_from(data, at)[0],
    12: lambda data, at: instant_of(_INT64.unpack_from(data, at)[0]),
    16: _long_text,
}


def _count(data: bytes, at: int, is_large: int) -> tuple[int, int]:
    """Return the count of an object or array, and where it ends."""
    return (_number(data, at, 4), at + 4) if is_large else (data[at], at + 1)


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")
