"""Bencoding, the notation of the ``ng`` protocol: texts, whole numbers, lists and dictionaries.

::

    4:ping    i-42e    l4:pingi1ee    d7:command4:pinge

A text is bytes on the wire; those that are not UTF-8 are kept by surrogates, so that what was read is written the same.
"""

from __future__ import annotations

import re
from typing import Any, Final

from wanderbus.errors import RemoteProtocolError

Value = str | int | list[Any] | dict[str, Any]
"""What can be written; the keys of a dictionary are texts."""

DEPTH_MAX: Final = 16
"""Lists and dictionaries within each other."""

_LENGTH: Final = re.compile(rb"(0|[1-9][0-9]{0,7}):")
_NUMBER: Final = re.compile(rb"i(0|-?[1-9][0-9]{0,18})e")


def encode(value: Value) -> bytes:
    """Return ``value`` as bytes; the keys of dictionaries stay in the order that they have."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def decode(data: bytes) -> Value:
    """Return the one value that ``data`` is.

    :raises RemoteProtocolError: it is none, something follows it, or it is nested too deep
    """
    value, end = _read(data, 0, DEPTH_MAX)
    if end != len(data):
        raise RemoteProtocolError(f"bencoding: something follows at byte {end}", status=None)
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
    """Return the value at ``start`` and where it ends."""
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
            raise RemoteProtocolError(f"bencoding: no whole number at byte {start}", status=None)
        return int(number[1]), number.end()
    length = _LENGTH.match(data, start)
    if length is None:
        raise RemoteProtocolError(f"bencoding: nothing that can be read at byte {start}", status=None)
    end = length.end() + int(length[1])
    if end > len(data):
        raise RemoteProtocolError(f"bencoding: the text at byte {start} is cut short", status=None)
    return data[length.end() : end].decode(errors="surrogateescape"), end


def _paired(items: list[Any], end: int) -> dict[str, Any]:
    """Return the dictionary of keys and values in turn; of a key that is repeated the last value holds."""
    keys = items[::2]
    if len(items) % 2 or not all(isinstance(key, str) for key in keys):
        raise RemoteProtocolError(f"bencoding: the dictionary before byte {end} has no text for a key", status=None)
    return dict(zip(keys, items[1::2], strict=True))
