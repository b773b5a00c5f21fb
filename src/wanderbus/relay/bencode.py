"""Bencoding, the notation of the ``ng`` protocol: strings, integers, lists and dictionaries.

::

    4:ping    i-42e    l4:pingi1ee    d7:command4:pinge

A string is bytes on the wire. Bytes that are not UTF-8 are decoded to surrogates, so that they are encoded unchanged.
"""

from __future__ import annotations

import re
from typing import Any, Final

from wanderbus.errors import RemoteProtocolError

Value = str | int | list[Any] | dict[str, Any]
"""Values that can be encoded; the keys of a dictionary are strings."""

DEPTH_MAX: Final = 16
"""Maximum nesting of lists and dictionaries."""

_LENGTH: Final = re.compile(rb"(0|[1-9][0-9]{0,7}):")
_NUMBER: Final = re.compile(rb"i(0|-?[1-9][0-9]{0,18})e")


def encode(value: Value) -> bytes:
    """Encode ``value``; the keys of dictionaries keep their order."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def decode(data: bytes) -> Value:
    """Decode ``data``, which must be exactly one value.

    :raises RemoteProtocolError: it is not a value, more data follows, or it is nested too deep
    """
    value, end = _read(data, 0, DEPTH_MAX)
    if end != len(data):
        raise RemoteProtocolError(f"bencoding: unexpected data at byte {end}", status=None)
    return value


def _write(value: Any, parts: list[bytes]) -> None:
    match value:
        case str():
            text = value.encode(errors="surrogateescape")
            parts += (b"%d:" % len(text), text)
        case int():
            parts.append(b"i%de" % value)
        case dict():
            parts.append(b"d")
            for key, each in value.items():
                _write(key, parts)
                _write(each, parts)
            parts.append(b"e")
        case _:
            parts.append(b"l")
            for each in value:
                _write(each, parts)
            parts.append(b"e")


def _read(data: bytes, start: int, depth_left: int) -> tuple[Value, int]:
    """Return the value at ``start``, and its end."""
    kind = data[start : start + 1]
    if kind in (b"l", b"d"):
        if not depth_left:
            raise RemoteProtocolError(f"bencoding: nested deeper than {DEPTH_MAX}", status=None)
        items, start = [], start + 1
        while data[start : start + 1] != b"e":
            item, start = _read(data, start, depth_left - 1)
            items.append(item)
        return (items if kind == b"l" else _paired(items, start)), start + 1
    if kind == b"i":
        number = _NUMBER.match(data, start)
        if number is None:
            raise RemoteProtocolError(f"bencoding: no integer at byte {start}", status=None)
        return int(number[1]), number.end()
    length = _LENGTH.match(data, start)
    if length is None:
        raise RemoteProtocolError(f"bencoding: no value begins at byte {start}", status=None)
    end = length.end() + int(length[1])
    if end > len(data):
        raise RemoteProtocolError(f"bencoding: the string at byte {start} is incomplete", status=None)
    return data[length.end() : end].decode(errors="surrogateescape"), end


def _paired(items: list[Any], end: int) -> dict[str, Any]:
    """Return the dictionary of alternating keys and values; the last value of a repeated key counts."""
    keys = items[::2]
    if len(items) % 2 or not all(isinstance(key, str) for key in keys):
        raise RemoteProtocolError(f"bencoding: a key is not a string before byte {end}", status=None)
    return dict(zip(keys, items[1::2], strict=True))
