"""MessagePack in Python alone, as far as the messages of wanderbus need it."""

import struct

try:
    from typing import Any
except ImportError:  # MicroPython
    Any = object  # type: ignore[assignment,misc]


class LightError(Exception):
    """An error of the lightweight client; its text says what to do."""


class Date:
    """An instant, in microseconds since the Unix epoch: an attribute of an event that is a date."""

    def __init__(self, us: int) -> None:
        self.us = us

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Date) and other.us == self.us

    def __hash__(self) -> int:
        return hash(self.us)

    def __repr__(self) -> str:
        return f"Date({self.us})"


class Raw:
    """Bytes that are encoded already."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def pack(value: Any) -> bytes:
    """Return ``value`` in MessagePack; ``LightError`` for a type that events do not have."""
    out = bytearray()
    _pack(value, out)
    return bytes(out)


def _pack(value: Any, out: bytearray) -> None:
    if value is None:
        out.append(0xC0)
    elif value is True or value is False:
        out.append(0xC3 if value else 0xC2)
    elif isinstance(value, int):
        _pack_integer(value, out)
    elif isinstance(value, float):
        out += struct.pack(">Bd", 0xCB, value)
    elif isinstance(value, str):
        data = value.encode()
        _pack_length(len(data), out, 0xA0, 31, 0xD9, 0xDA, 0xDB)
        out += data
    elif isinstance(value, (bytes, bytearray)):
        _pack_length(len(value), out, None, 0, 0xC4, 0xC5, 0xC6)
        out += value
    elif isinstance(value, (list, tuple)):
        _pack_length(len(value), out, 0x90, 15, None, 0xDC, 0xDD)
        for each in value:
            _pack(each, out)
    elif isinstance(value, dict):
        _pack_length(len(value), out, 0x80, 15, None, 0xDE, 0xDF)
        for name, each in value.items():
            _pack(name, out)
            _pack(each, out)
    elif isinstance(value, Raw):
        out += value.data
    elif isinstance(value, Date):
        seconds, us = divmod(value.us, 1_000_000)
        out += struct.pack(">BBbIq", 0xC7, 12, -1, us * 1000, seconds)
    else:
        raise LightError("an attribute is a str, int, float, bool, Date or a list of these")


def _pack_integer(value: int, out: bytearray) -> None:
    if 0 <= value < 128:
        out.append(value)
    elif -32 <= value < 0:
        out.append(value + 256)
    elif value >= 0:
        for code, form, most in ((0xCC, ">BB", 8), (0xCD, ">BH", 16), (0xCE, ">BI", 32), (0xCF, ">BQ", 64)):
            if value < 1 << most:
                out += struct.pack(form, code, value)
                return
        raise LightError("an integer is beyond 64 bits")
    elif value >= -(1 << 63):
        out += struct.pack(">Bq", 0xD3, value)
    else:
        raise LightError("an integer is beyond 64 bits")


def _pack_length(
    size: int, out: bytearray, short: int | None, most: int, code8: int | None, code16: int, code32: int
) -> None:
    if short is not None and size <= most:
        out.append(short | size)
    elif code8 is not None and size < 1 << 8:
        out += struct.pack(">BB", code8, size)
    elif size < 1 << 16:
        out += struct.pack(">BH", code16, size)
    else:
        out += struct.pack(">BI", code32, size)


def unpack(data: bytes) -> Any:
    """Return the value in ``data``; ``LightError`` if that is not exactly one in MessagePack."""
    try:
        value, end = _unpack(data, 0, 0)
    except (IndexError, ValueError, KeyError, TypeError, struct.error):
        raise LightError("the server sent something else than MessagePack") from None
    if end != len(data):
        raise LightError("the server sent more than one value of MessagePack")
    return value


_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS.update({0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"})
_LENGTHS = {0xD9: (1, "s"), 0xDA: (2, "s"), 0xDB: (4, "s"), 0xC4: (1, "b"), 0xC5: (2, "b"), 0xC6: (4, "b")}
_LENGTHS.update({0xDC: (2, "a"), 0xDD: (4, "a"), 0xDE: (2, "m"), 0xDF: (4, "m")})
_LENGTHS.update({0xC7: (1, "x"), 0xC8: (2, "x"), 0xC9: (4, "x")})


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    code = data[at]
    at += 1
    if depth > 16:
        raise ValueError
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 256, at
    if code in (0xC0, 0xC2, 0xC3):
        return (None if code == 0xC0 else code == 0xC3), at
    if code in _NUMBERS:
        form = _NUMBERS[code]
        size = struct.calcsize(form)
        return struct.unpack(form, data[at : at + size])[0], at + size
    if code < 0x90:
        return _unpack_items(data, at, code & 15, "m", depth)
    if code < 0xA0:
        return _unpack_items(data, at, code & 15, "a", depth)
    if code < 0xC0:
        return _unpack_items(data, at, code & 31, "s", depth)
    if 0xD4 <= code <= 0xD8:
        return _unpack_items(data, at, 1 << (code - 0xD4), "x", depth)
    size, kind = _LENGTHS[code]
    length = int.from_bytes(data[at : at + size], "big")
    return _unpack_items(data, at + size, length, kind, depth)


def _unpack_items(data: bytes, at: int, count: int, kind: str, depth: int) -> tuple[Any, int]:
    end = at + count + (kind == "x")
    if end > len(data):
        raise ValueError
    if kind == "s":
        return data[at:end].decode(), end
    if kind == "b":
        return data[at:end], end
    if kind == "x":
        return _date(data[at], data[at + 1 : end]), end
    items = []
    for _ in range(count * 2 if kind == "m" else count):
        item, at = _unpack(data, at, depth + 1)
        items.append(item)
    return (dict(zip(items[::2], items[1::2])) if kind == "m" else items), at  # noqa: B905


def _date(kind: int, data: bytes) -> Date:
    """Return the timestamp in the extension -1 of MessagePack, in one of its three lengths."""
    if kind != 255:
        raise ValueError
    if len(data) == 4:
        return Date(struct.unpack(">I", data)[0] * 1_000_000)
    if len(data) == 8:
        whole = struct.unpack(">Q", data)[0]
        return Date((whole & 0x3FFFFFFFF) * 1_000_000 + (whole >> 34) // 1000)
    ns, seconds = struct.unpack(">Iq", data)
    return Date(seconds * 1_000_000 + ns // 1000)
