"""Group commit: one thread writes and syncs the log, and saves the state, while the loop goes on (DESIGN 8).

Whatever was handed over while the last sync ran goes into the next one. The state is saved in the same order,
so rows are never on disk before the records they reflect.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence

from wanderbus.runtime.event_log import EventLog
from wanderbus.runtime.state_store import StateStore

LogEntry = tuple[int, int, bytes]
Changes = Mapping[str, Mapping[str, bytes | None]]


class Committer:
    """Owns the log and the store of a running server.

    ``on_durable(next_offset)`` and ``on_failure(error)`` are called on the loop; after a failure nothing more is
    written, so nothing more is acknowledged.
    """

    def __init__(
        self,
        log: EventLog,
        store: StateStore,
        *,
        on_durable: Callable[[int], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.syncs = 0
        self._log = log
        self._store = store
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._wakeup = threading.Condition()
        self._entries: list[LogEntry] = []
        self._saves: list[tuple[Changes, int]] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="wanderbus-commit", daemon=True)
        self._thread.start()

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Write ``entries`` after all before them, and sync."""
        with self._wakeup:
            self._entries += entries
            self._wakeup.notify()

    def save(self, changes: Changes, offset: int) -> None:
        """Save rows that reflect every record below ``offset``, all of which were handed over before."""
        with self._wakeup:
            self._saves.append((changes, offset))
            self._wakeup.notify()

    def stop(self) -> None:
        """Finish what was handed over, and end the thread; blocks for at most a few syncs."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wakeup:
                self._wakeup.wait_for(lambda: self._entries or self._saves or self._stopping)
                entries, self._entries = self._entries, []
                saves, self._saves = self._saves, []
                if not entries and not saves:
                    return
            try:
                self._commit(entries, saves)
            except Exception as error:
                self._call(self._on_failure, error)
                return

    def _commit(self, entries: list[LogEntry], saves: list[tuple[Changes, int]]) -> None:
        if entries:
            self._log.append(entries)
            durable = self._log.sync()
            self.syncs += 1
            self._call(self._on_durable, durable)
        for changes, offset in saves:
            self._store.save(changes, offset)

    def _call(self, callback: Callable[..., None], argument: object) -> None:
        """Tell the loop, unless it is gone: then nobody waits for the answer either."""
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
