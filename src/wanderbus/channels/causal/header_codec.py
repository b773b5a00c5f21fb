"""Compact form of causal headers: numbers relative to those before on the same link.

A number is a varint of seven bits a byte (LEB128). The encoder and decoder of a link begin empty with each new link; a
header that is encoded by a fresh encoder stands for itself.
"""

from __future__ import annotations

from typing import Final

from wanderbus.channels.causal.header import Entry, Header, Origin, members
from wanderbus.errors import RemoteProtocolError

VARINT_BYTES_MAX: Final = 32
"""Longest number: a bitmap of 224 servers."""


class HeaderEncoder:
    """Encoder of the headers that are sent on one link."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        """Incarnation and number of each server in the last dot that named it."""

    def encode(self, header: Header) -> bytes:
        """Return the bytes of ``header``."""
        out = bytearray()
        self._put_dot(out, header.origin, header.number)
        _put(out, header.servers)
        for _, before in header.befores:
            _put(out, header.number - before)
        _put(out, header.number - header.settled << 1 | bool(header.lagging))
        if header.lagging:
            _put(out, header.lagging)
        for entry in header.entries:
            self._put_dot(out, entry.origin, entry.number)
            _put(out, entry.servers)
        return bytes(out)

    def _put_dot(self, out: bytearray, origin: Origin, number: int) -> None:
        server, incarnation = origin
        known, last = self._last.get(server, (0, 0))
        _put(out, server << 1 | (incarnation != known))
        if incarnation != known:
            last = 0
            _put(out, incarnation)
        difference = number - last
        _put(out, difference << 1 if difference >= 0 else (-difference << 1) - 1)
        self._last[server] = incarnation, number


class HeaderDecoder:
    """Decoder of the headers that arrive on one link."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def decode(self, data: bytes) -> Header:
        """Return the header.

        Raises:
            RemoteProtocolError: the bytes are no header.
        """
        reader = _Reader(data)
        origin, number = self._take_dot(reader)
        befores = tuple((server, number - reader.take()) for server in members(reader.take()))
        mark = reader.take()
        lagging = reader.take() if mark & 1 else 0
        entries = []
        while reader.has_more():
            entries.append(Entry(*self._take_dot(reader), reader.take()))
        if number < 1 or any(before < 0 for _, before in befores) or any(entry.number < 1 for entry in entries):
            raise RemoteProtocolError("causal header: a number is out of range")
        return Header(origin, number, befores, tuple(entries), number - (mark >> 1), lagging)

    def _take_dot(self, reader: _Reader) -> tuple[Origin, int]:
        first = reader.take()
        server = first >> 1
        incarnation, last = self._last.get(server, (0, 0))
        if first & 1:
            incarnation, last = reader.take(), 0
        difference = reader.take()
        number = last + (-(difference + 1 >> 1) if difference & 1 else difference >> 1)
        self._last[server] = incarnation, number
        return (server, incarnation), number


class _Reader:
    """Reads varints from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def has_more(self) -> bool:
        return self._at < len(self._data)

    def take(self) -> int:
        value = shift = 0
        for byte in self._data[self._at : self._at + VARINT_BYTES_MAX]:
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise RemoteProtocolError("causal header: a number does not end")


def _put(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
