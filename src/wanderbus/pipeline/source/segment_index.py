"""Sparse index of one segment: where its records are, and when they were written (SPEC T-02).

The index is made by reading the heads of the frames, some millions in a second, and continues where it ended as the
segment grows. It lives in memory: the pipeline writes nothing into the log's directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from wanderbus.pipeline.source.frames import frame_end, next_frame
from wanderbus.runtime.segment_files import unreadable
from wanderbus.segments import FRAME_HEAD, FRAME_OVERHEAD_BYTES, HEADER

STRIDE: Final = 256
"""Records in one block; the index has one entry for each block."""

_CHUNK_BYTES: Final = 4 << 20


class SegmentIndex:
    """Bytes and times of a segment whose first record is ``base``, by blocks of :data:`STRIDE` records.

    A record that damage has made unreachable gets the byte of the next readable one, so that a part which ends there
    contains the damage.
    """

    def __init__(self, path: Path, base: int) -> None:
        self.path = path
        self.base = base
        self._blocks: list[int] = []
        self._spans: list[tuple[int, ...]] = []
        self._times: list[int] = []
        self._offset = base
        self._byte = self._previous = len(HEADER)
        self._chunk_bytes = _CHUNK_BYTES

    def byte_of(self, offset: int) -> int:
        """Return the byte at which the frame of record ``offset`` begins; equally for the one after the last."""
        self._extend(offset)
        block = (offset - self.base) // STRIDE
        if offset == self._offset or block >= len(self._blocks):
            return self._byte
        walk = SegmentIndex(self.path, self.base + block * STRIDE)
        walk._byte = walk._previous = self._blocks[block]
        if block + 1 < len(self._blocks):
            walk._chunk_bytes = self._blocks[block + 1] - walk._byte + FRAME_OVERHEAD_BYTES
        walk._extend(offset)
        return walk._byte

    def runs(self, first: int, end: int, least_us: int | None, most_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield the ranges of ``first..end-1`` that may have records of the time ``least_us`` to ``most_us``."""
        if least_us is None and most_us is None:
            yield first, end
            return
        self._extend(end)
        begin: int | None = None
        for block in range((first - self.base) // STRIDE, -(-(end - self.base) // STRIDE)):
            low = max(first, self.base + block * STRIDE)
            if self._may_contain(block, least_us, most_us):
                begin = low if begin is None else begin
            elif begin is not None:
                yield begin, low
                begin = None
        if begin is not None:
            yield begin, end

    def offset_within(self, first: int, end: int, bytes_max: int) -> tuple[int, int]:
        """Return the offset after the last frame within ``bytes_max`` of ``first``, and the bytes used."""
        start, low, high = self.byte_of(first), first, end
        while low < high:
            middle = (low + high + 1) // 2
            if self.byte_of(middle) - start <= bytes_max:
                low = middle
            else:
                high = middle - 1
        return low, self.byte_of(low) - start

    def _may_contain(self, block: int, least_us: int | None, most_us: int | None) -> bool:
        times = self._spans[block] if block < len(self._spans) else self._times
        if not times:
            return False  # every record of the block is lost
        return (most_us is None or min(times) <= most_us) and (least_us is None or max(times) >= least_us)

    def _extend(self, end: int) -> None:
        """Read the heads of frames until the index reaches record ``end``, and check that its frame is there."""
        if self._offset >= end:
            return
        with opened(self.path) as file:
            while self._offset < end:
                file.seek(self._byte)
                if not self._walk(file.read(self._chunk_bytes), end):
                    self._pass_damage(file, end)
            file.seek(self._byte)
            head = file.read(FRAME_OVERHEAD_BYTES)
            if len(head) < FRAME_OVERHEAD_BYTES or FRAME_HEAD.unpack(head)[2] != self._offset:
                self._pass_damage(file, end)

    def _walk(self, data: bytes, end: int) -> bool:
        """Continue over the frames in ``data``; return False at a frame that is not the awaited one."""
        unpack, start, limit = FRAME_HEAD.unpack_from, self._byte, len(data) - FRAME_OVERHEAD_BYTES
        offset, place, previous, boundary = self._offset, 0, self._previous - start, (self._offset - self.base) % STRIDE
        times, is_awaited = self._times, limit >= 0
        while offset < end and place <= limit:
            length, _, found, at_us = unpack(data, place)
            if found != offset:
                is_awaited = False
                break
            if boundary == 0:
                times = self._open_block(start + place)
            times.append(at_us)
            previous, place, offset = place, place + FRAME_OVERHEAD_BYTES + length, offset + 1
            boundary = 0 if boundary == STRIDE - 1 else boundary + 1
        self._offset, self._byte, self._previous = offset, start + place, start + previous
        return is_awaited

    def _open_block(self, byte: int) -> list[int]:
        """Begin a block, and close the one before."""
        if self._blocks:
            self._spans.append((min(self._times), max(self._times)) if self._times else ())
        self._blocks.append(byte)
        self._times = []
        return self._times

    def _pass_damage(self, file: BinaryIO, end: int) -> None:
        """Continue at the next readable frame; without one, what is missing up to ``end`` is lost.

        A wrong length is only noticed at the frame that follows, so the frame before is checked first.
        """
        file.seek(self._previous)
        data = file.read()
        awaited = self._byte - self._previous
        if self._previous < self._byte and frame_end(data, 0) != awaited:
            awaited = 1
        elif self._offset == end:
            return  # the frame at the end of the range is another's business
        found = next_frame(data, awaited, self._offset, self._offset + len(data))
        place, offset = (len(data), end) if found is None else found
        byte = self._previous + place
        for lost in range(self._offset, offset):
            if (lost - self.base) % STRIDE == 0:
                self._open_block(byte)
        self._offset, self._byte, self._previous = offset, byte, byte


def opened(path: Path) -> BinaryIO:
    """Return the file, opened for reading; ``StorageError`` in one line if it cannot be."""
    try:
        return path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from None
