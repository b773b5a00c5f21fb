"""Sessions by the bytes that wait for them, the longest first, while the broker's bound is near (SPEC G-18).

A full broker drops for each event. A search through all sessions for each drop would cost more than everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, TypeAlias

from wanderbus.broker.state.rows import SessionRow

_ROOM: Final = 1_024
"""Entries beyond two for each session, after which all are made again."""

_Entry: TypeAlias = tuple[int, str]
"""Bytes as a negative number, and the key of a session."""


class LongestSessions:
    """Heap of the sessions; ``rows`` returns them all, and ``find`` one by its key.

    An entry may be too long, because its session has lost notifications since; it is corrected when it is the first.
    """

    def __init__(self, rows: Callable[[], Iterable[SessionRow]], find: Callable[[str], SessionRow | None]) -> None:
        self._rows = rows
        self._find = find
        self._heap: list[_Entry] | None = None
        """None while the bound is far."""
        self._most = 0

    @property
    def is_kept(self) -> bool:
        """Return whether sessions that grow have to be noted."""
        return self._heap is not None

    def grew(self, sessions: Collection[SessionRow], *, is_near: bool) -> None:
        """Note that sessions have another notification; forget all if the bound is not near any more."""
        if self._heap is None or not is_near or len(self._heap) + len(sessions) > self._most:
            self._heap = None
            return
        for session in sessions:
            heappush(self._heap, (-session.queued_bytes, session.key))

    def first(self) -> SessionRow:
        """Return the session for which most bytes wait."""
        if self._heap is None:
            self._heap = self._made()
        while True:
            while not self._heap:
                self._heap = self._made()
            size, key = self._heap[0]
            session = self._find(key)
            if session is None or not session.queued_bytes:
                heappop(self._heap)
            elif session.queued_bytes == -size:
                return session
            else:
                heapreplace(self._heap, (-session.queued_bytes, key))

    def _made(self) -> list[_Entry]:
        heap = [(-row.queued_bytes, row.key) for row in self._rows() if row.queued_bytes]
        self._most = 2 * len(heap) + _ROOM
        heapify(heap)
        return heap
