"""Attributes as Spark's binary VARIANT: all five types of SPEC A-13 as they are, infinite numbers too.

JSON has neither infinite numbers nor dates, and Spark reads its ``2.5`` as a decimal. The format is that of Parquet's
specification of variants: a dictionary of names, and a value that refers to it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SHORT_TEXT_BYTES_MAX: Final = 63
_SMALL_COUNT_MAX: Final = 255
_SHAPES_MAX: Final = 4_096

_OBJECT: Final = 2
_ARRAY: Final = 3
_VERSION: Final = 1
_TRUE, _FALSE = bytes([1 << 2]), bytes([2 << 2])
_SHORT_TEXT = tuple(bytes([size << 2 | 1]) for size in range(_SHORT_TEXT_BYTES_MAX + 1))
_INT8 = tuple(struct.pack("<Bb", 3 << 2, number) for number in range(-128, 128))
_INT16, _INT32, _INT64 = struct.Struct("<Bh"), struct.Struct("<Bi"), struct.Struct("<Bq")
_DOUBLE, _LONG_TEXT = struct.Struct("<Bd"), struct.Struct("<BI")


class _Shape(NamedTuple):
    """The part of an object that depends on the names alone: events of one kind share it."""

    metadata: bytes
    names: tuple[str, ...]
    """In the order of the object's fields."""
    ids: bytes
    """Count and dictionary ids, as they stand in the object."""


def variant_of(attributes: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return value and metadata of the variant object with these attributes; ``TypeError`` for a value of no type."""
    shape = _shape(tuple(attributes))
    values = _values([attributes[name] for name in shape.names])
    width, offsets = _offsets(values)
    is_large, id_width = len(values) > _SMALL_COUNT_MAX, _width(max(len(values) - 1, 0))
    header = ((is_large << 4 | (id_width - 1) << 2 | (width - 1)) << 2) | _OBJECT
    return b"".join((bytes([header]), shape.ids, offsets, *values)), shape.metadata


@lru_cache(_SHAPES_MAX)
def _shape(names: tuple[str, ...]) -> _Shape:
    # Spark compares names as Java does, by units of UTF-16.
    ordered = tuple(sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass")))
    texts = [name.encode() for name in ordered]
    count, width = len(texts), _width(max(len(texts), sum(map(len, texts))))
    places = accumulate(map(len, texts), initial=0)
    numbers = b"".join(number.to_bytes(width, "little") for number in (count, *places))
    metadata = bytes([_VERSION | (width - 1) << 6]) + numbers + b"".join(texts)
    id_width = _width(max(count - 1, 0))
    ids = b"".join(number.to_bytes(id_width, "little") for number in range(count))
    return _Shape(metadata, ordered, _count(count) + ids)


def _values(values: Sequence[Any]) -> list[bytes]:
    try:
        return [_ENCODERS[type(value)](value) for value in values]
    except KeyError as error:
        raise TypeError(f"an attribute of the type {error.args[0].__name__}") from None


def _integer(number: int) -> bytes:
    if -128 <= number < 128:
        return _INT8[number + 128]
    if -(1 << 15) <= number < 1 << 15:
        return _INT16.pack(4 << 2, number)
    if -(1 << 31) <= number < 1 << 31:
        return _INT32.pack(5 << 2, number)
    if -(1 << 63) <= number < 1 << 63:
        return _INT64.pack(6 << 2, number)
    raise TypeError("an integer beyond 64 bits")


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) <= _SHORT_TEXT_BYTES_MAX:
        return _SHORT_TEXT[len(data)] + data
    return _LONG_TEXT.pack(16 << 2, len(data)) + data


def _date(date: datetime) -> bytes:
    return _INT64.pack(12 << 2, (date - _EPOCH) // _MICROSECOND)


def _list(items: list[Any]) -> bytes:
    values = _values(items)
    width, offsets = _offsets(values)
    header = (((len(values) > _SMALL_COUNT_MAX) << 2 | (width - 1)) << 2) | _ARRAY
    return b"".join((bytes([header]), _count(len(values)), offsets, *values))


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: _text,
    int: _integer,
    float: lambda number: _DOUBLE.pack(7 << 2, number),
    bool: lambda truth: _TRUE if truth else _FALSE,
    datetime: _date,
    list: _list,
}


def _offsets(values: list[bytes]) -> tuple[int, bytes]:
    """Return the width of an offset, and the offsets at which the values begin and the last one ends."""
    places = list(accumulate(map(len, values), initial=0))
    width = _width(places[-1])
    if width == 1:
        return 1, bytes(places)
    if width == 2:
        return 2, struct.pack(f"<{len(places)}H", *places)
    return width, b"".join(place.to_bytes(width, "little") for place in places)


def _count(count: int) -> bytes:
    return bytes([count]) if count <= _SMALL_COUNT_MAX else struct.pack("<I", count)


def _width(largest: int) -> int:
    """Return how many bytes hold the number ``largest``."""
    return max(1, (largest.bit_length() + 7) // 8)
