"""Binary format of a segment of the event log: framing only, no files (DESIGN 8, SPEC T-01).

A segment file is named ``<offset of its first record, 20 digits>.seg`` and holds an 8-byte header
(``WBLOG``, a zero, a version as u16), then frames::

    u32 length of payload | u32 crc32 of the rest | i64 offset | i64 at_us | payload

Offsets are dense across segments. An incomplete frame, or one with a wrong checksum, ends the readable part.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

HEADER: Final = b"WBLOG\x00\x00\x01"
"""First bytes of every segment file; the last two are the version of this framing."""

_STAMP = struct.Struct("<qq")
FRAME_HEAD: Final = struct.Struct("<IIqq")
"""Head of a frame: length of the payload, checksum, offset, time."""

FRAME_OVERHEAD_BYTES: Final = FRAME_HEAD.size

HIGH_WATER: Final = "durable"
"""Name of the file beside the segments that holds the durable high-water mark (see :func:`pack_mark`)."""


class Sliced(Protocol):
    """Bytes, in memory or mapped from a file."""

    def __len__(self) -> int:
        """Return the number of bytes."""
        ...

    def __getitem__(self, part: slice, /) -> bytes:
        """Return a slice of the bytes."""
        ...


class Frame(NamedTuple):
    """One record in a segment: its log ``offset``, the time it was written, its payload, and where it ends."""

    offset: int
    at_us: int
    payload: bytes
    end: int


class LogPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Place of a reader in a log: the offset of its next record, and the checksum of the record before it.

    Offsets alone do not identify records: a log that was restored from a copy gives them to other records later. The
    checksum is None at the beginning of a log, and where it is unknown.
    """

    offset: int
    checksum: int | None = None


def record_checksum(offset: int, at_us: int, payload: bytes) -> int:
    """Return the checksum in the frame of a record."""
    return zlib.crc32(payload, zlib.crc32(_STAMP.pack(offset, at_us)))


def segment_name(offset: int) -> str:
    """Return the file name of the segment whose first record has ``offset``."""
    return f"{offset:020d}.seg"


def pack_frame(offset: int, at_us: int, payload: bytes) -> bytes:
    """Return the frame of one record."""
    return FRAME_HEAD.pack(len(payload), record_checksum(offset, at_us, payload), offset, at_us) + payload


def frames(data: Sliced, start: int = 0) -> Iterator[Frame]:
    """Yield the complete and valid frames of ``data`` from byte ``start`` on; stop at the first invalid one."""
    size = len(data)
    while (body := start + FRAME_OVERHEAD_BYTES) <= size:
        length, checksum, offset, at_us = FRAME_HEAD.unpack(data[start:body])
        end = body + length
        if end > size:
            return
        payload = data[body:end]
        if record_checksum(offset, at_us, payload) != checksum:
            return
        yield Frame(offset, at_us, payload, end)
        start = end


def first_time_us(beginning: bytes) -> int | None:
    """Return the time of a segment's first record, from the first bytes of the file; None if there is none yet."""
    if len(beginning) < len(HEADER) + FRAME_OVERHEAD_BYTES:
        return None
    return int(FRAME_HEAD.unpack_from(beginning, len(HEADER))[3])


def pack_mark(next_offset: int) -> bytes:
    """Return the durable high-water mark: records below ``next_offset`` have been synced."""
    body = struct.pack("<q", next_offset)
    return body + struct.pack("<I", zlib.crc32(body))


def unpack_mark(data: bytes) -> int | None:
    """Return the offset in a high-water mark, or None if ``data`` is incomplete or invalid."""
    if len(data) != 12 or struct.unpack("<I", data[8:])[0] != zlib.crc32(data[:8]):
        return None
    return int(struct.unpack("<q", data[:8])[0])
