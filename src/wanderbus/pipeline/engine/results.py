"""Matches that wait for the server, in order; a full store lets the query wait (SPEC T-06)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wanderbus.errors import WanderbusError
from wanderbus.pipeline.engine.chunks import MatchChunk
from wanderbus.runtime.services.engine import EventMatches

STORE_BYTES_MAX: Final = 64 * 2**20
"""Bytes of matches that wait for the server. The last batch may exceed it."""

ANSWER_BYTES_MAX: Final = 2**20
"""Bytes of matches in one answer; one chunk is always allowed."""

CHUNK_BYTES: Final = 128
"""Memory of a chunk beside its matches."""

_matches: Final = msgspec.msgpack.Decoder(list[EventMatches])
_encode: Final = msgspec.msgpack.Encoder().encode


class Ended(WanderbusError):
    """The server began again elsewhere, or the engine stops: nobody wants these matches."""


class Results:
    """The chunks from ``first`` on; one thread puts them, another one gets them."""

    def __init__(self, first: int, bytes_max: int = STORE_BYTES_MAX) -> None:
        self.begin = first
        self.end = first
        """Offset up to which there are matches."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._chunks: deque[MatchChunk] = deque()
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, chunks: Iterable[MatchChunk]) -> None:
        """Append chunks, and wait until there is room again.

        :raises Ended: :meth:`close` was called
        :raises ValueError: they do not continue at the end
        """
        with self._changed:
            for chunk in chunks:
                if chunk.first != self.end or chunk.end <= chunk.first:
                    raise ValueError(f"matches of {chunk.first} to {chunk.end} cannot follow those up to {self.end}")
                self._chunks.append(chunk)
                self._bytes += len(chunk.matches) + CHUNK_BYTES
                self.end = chunk.end
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed or self._bytes < self._bytes_max)
            if self._is_closed:
                raise Ended("the matches are no longer wanted")

    def get(self, first: int, durable: int, wait_s: float) -> list[MatchChunk] | None:
        """Return chunks from ``first`` on, none if there are none within ``wait_s`` or after :meth:`close`.

        Chunks below ``durable`` are dropped. The result is None if the matches at ``first`` were dropped before.
        """
        with self._changed:
            self._drop(durable)
            self._changed.wait_for(lambda: self._is_closed or self.end > first, wait_s)
            if first < self.begin:
                return None
            found: list[MatchChunk] = []
            size = 0
            for chunk in self._chunks:
                if chunk.end <= first:
                    continue
                if found and size + len(chunk.matches) > ANSWER_BYTES_MAX:
                    break
                found.append(chunk if chunk.first >= first else _behind(chunk, first))
                size += len(chunk.matches)
            return found

    def close(self) -> None:
        """Let everybody who waits return."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _drop(self, durable: int) -> None:
        while self._chunks and self._chunks[0].end <= durable:
            chunk = self._chunks.popleft()
            self._bytes -= len(chunk.matches) + CHUNK_BYTES
            self.begin = chunk.end
        self._changed.notify_all()


def _behind(chunk: MatchChunk, first: int) -> MatchChunk:
    """Return the part of a chunk from offset ``first`` on."""
    kept = [each for each in _matches.decode(joined(chunk.count, [chunk.matches])) if each.offset >= first]
    return msgspec.structs.replace(chunk, first=first, count=len(kept), matches=b"".join(map(_encode, kept)))


def joined(count: int, parts: Sequence[bytes]) -> bytes:
    """Return ``count`` values of msgpack as one array."""
    if count < 16:
        head = bytes([0x90 | count])
    elif count < 2**16:
        head = b"\xdc" + count.to_bytes(2, "big")
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    return b"".join([head, *parts])
