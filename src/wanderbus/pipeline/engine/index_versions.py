"""Versions of the index: a base with all subscriptions, and blocks of the changes since (SPEC T-06).

A task names the version that it needs. A worker that has an earlier version applies the blocks that it lacks. A worker
that has none, or one that is too old, begins with the base. Blocks are bytes until a worker applies them, so a task
costs little however many changes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from wanderbus.pipeline.engine.interest import Changes, EngineFilter

BLOCKS_BYTES_MIN: Final = 256 * 2**10
"""Bytes of blocks from which on a new base may be made."""

BASE_SHARE: Final = 8
"""A new base is made if the blocks since the last one have this part of its bytes."""

BLOCKS_MAX: Final = 256
"""Blocks since the last base."""

_encoder: Final = msgspec.msgpack.Encoder()


class Shared(Protocol):
    """Bytes that the workers get once, when they first read ``value``."""

    @property
    def value(self) -> bytes:
        """Return the bytes."""
        ...


class IndexVersion(NamedTuple):
    """The version of the index that a task needs, and everything to make it.

    ``blocks`` are the changes to the versions from ``first`` + 1 up to ``number``.
    """

    beginning: str
    number: int
    base: Shared
    base_number: int
    first: int
    blocks: tuple[bytes, ...]


class IndexVersions:
    """The versions of one beginning; ``share`` makes bytes available to the workers.

    Blocks before the base are kept until the next base, for workers that had nothing to do for a while.
    """

    def __init__(self, beginning: str, wanted: Sequence[EngineFilter], share: Callable[[bytes], Shared]) -> None:
        self._beginning = beginning
        self._share = share
        self._first = 0
        self._blocks: list[bytes] = []
        self._rebase(wanted)

    def add(self, changes: Changes, wanted: Callable[[], Sequence[EngineFilter]]) -> IndexVersion:
        """Return the version with these changes; ``wanted`` returns all subscriptions that it has."""
        if changes:
            self._blocks.append(_encoder.encode(changes))
            self._own_bytes += len(self._blocks[-1])
            if self._own_bytes > max(BLOCKS_BYTES_MIN, self._base_bytes // BASE_SHARE) or self._own > BLOCKS_MAX:
                self._blocks = self._blocks[self._base_number - self._first :]
                self._first = self._base_number
                self._rebase(wanted())
        return self.last

    @property
    def last(self) -> IndexVersion:
        """Return the last version."""
        number = self._first + len(self._blocks)
        return IndexVersion(self._beginning, number, self._base, self._base_number, self._first, tuple(self._blocks))

    @property
    def _own(self) -> int:
        """Return the number of blocks since the last base."""
        return self._first + len(self._blocks) - self._base_number

    def _rebase(self, wanted: Sequence[EngineFilter]) -> None:
        data = _encoder.encode(wanted)
        self._base, self._base_bytes = self._share(data), len(data)
        self._base_number = self._first + len(self._blocks)
        self._own_bytes = 0
