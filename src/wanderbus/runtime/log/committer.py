"""Group commit: one thread writes and syncs the log while the loop continues, another saves the state (DESIGN 8).

All records enqueued during a sync are written by the next one. Rows are saved once the records that they reflect are
durable, and no record waits for that. When the disk is full, records stay in memory, in order and unacknowledged,
until there is room.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from wanderbus.errors import StorageError
from wanderbus.runtime.files.disk import free_bytes, is_full
from wanderbus.runtime.log.event_log import EventLog

LogEntry = tuple[int, int, bytes]
Changes = Mapping[str, Mapping[str, bytes | None]]
Rows = tuple[Changes, int]
"""Changed rows, and the offset below which they reflect every record."""

RETRY_S_MIN: Final = 0.02
RETRY_S_MAX: Final = 1.0
"""Pause between two attempts to write to a full disk: it doubles each time, within these limits."""

UNWRITTEN_BYTES_MAX: Final = 64 * 2**20
"""Bytes of records that may wait in memory for a full disk. Publishes are refused by then; acknowledgements and
connections of devices still write small records, so this much means that the disk has been full for very long."""

RESERVE_CHECKS: Final = 8
"""Minimum number of checks of the reserve while as many bytes as the reserve are written."""


class RowStore(Protocol):
    """The state, such as :class:`~wanderbus.runtime.files.state_generations.StateGenerations`."""

    def save(self, changes: Changes, offset: int, /) -> None:
        """Store rows that reflect every record below ``offset``; ``OSError`` if there is no room."""
        ...


class _Enqueued(NamedTuple):
    """Input from the loop: records of each log, and rows to write."""

    entries: Mapping[str, Sequence[LogEntry]]
    rows: Rows | None


class _Saved(NamedTuple):
    """Result from the thread that saves: ``rows`` are in the store, or the error that prevented it."""

    rows: Rows
    error: Exception | None


class GroupCommit:
    """Records and rows that are not on disk yet, and the order in which they are written; without a thread."""

    def __init__(self, logs: Mapping[str, EventLog], on_durable: Callable[[str, int], None]) -> None:
        self.syncs = 0
        self._logs = logs
        self._on_durable = on_durable
        self._entries: dict[str, list[LogEntry]] = {}
        """Records to write, by log."""
        self._rows: dict[str, dict[str, bytes | None]] = {}
        self._rows_offset: int | None = None

    @property
    def unwritten_bytes(self) -> int:
        """Return how many bytes of records wait."""
        return sum(len(payload) for entries in self._entries.values() for _, _, payload in entries)

    def append(self, log: str, entries: Sequence[LogEntry]) -> None:
        """Enqueue ``entries`` to be written to ``log`` after all earlier ones, and synced."""
        self._entries.setdefault(log, []).extend(entries)

    def save(self, changes: Changes, offset: int) -> None:
        """Enqueue rows that reflect every record below ``offset``; the last state of a row replaces earlier ones."""
        for table, rows in changes.items():
            self._rows.setdefault(table, {}).update(rows)
        self._rows_offset = offset

    def commit(self) -> None:
        """Write the records to disk and sync. After ``OSError`` for lack of room the call may be retried."""
        for name in list(self._entries):
            log, entries = self._logs[name], self._entries[name]
            written = log.next_offset - entries[0][0]
            log.append(entries[written:])
            durable = log.sync()
            del self._entries[name]
            self.syncs += 1
            self._on_durable(name, durable)

    def take_rows(self) -> Rows | None:
        """Return and remove the rows that may be saved after a commit; None if there are none."""
        if self._rows_offset is None:
            return None
        rows: Rows = self._rows, self._rows_offset
        self._rows, self._rows_offset = {}, None
        return rows

    def give_back(self, rows: Rows) -> None:
        """Enqueue ``rows`` that could not be saved again, together with newer ones."""
        newer = self.take_rows()
        for changes, offset in filter(None, (rows, newer)):
            self.save(changes, offset)


class _Saver:
    """Thread that saves one batch of rows at a time, and reports each; it also runs other work on the state's files."""

    def __init__(self, store: RowStore, report: Callable[[_Saved], None]) -> None:
        self._store = store
        self._report = report
        self._tasks: SimpleQueue[Rows | Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="wanderbus-save", daemon=True)
        self._thread.start()

    def save(self, rows: Rows) -> None:
        self._tasks.put(rows)

    def run(self, work: Callable[[], None]) -> None:
        self._tasks.put(work)

    def stop(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            if callable(task):
                task()
                continue
            error: Exception | None = None
            try:
                self._store.save(*task)
            except Exception as failure:
                error = failure
            self._report(_Saved(task, error))


class Committer:
    """Owner of the logs, by name, and of the store of a running server; all are on one disk.

    ``on_durable(log, next_offset)``, ``on_full(reason)``, ``on_room()`` and ``on_failure(error)`` are called on the
    loop. The disk counts as full when a write fails for lack of room, or already when less than ``reserve_bytes`` are
    free, so that records which cannot be refused still have room. Free space is checked whenever rows or many records
    were written. After a failure nothing more is written, so nothing more is acknowledged.
    """

    def __init__(
        self,
        logs: Mapping[str, EventLog],
        store: RowStore,
        *,
        on_durable: Callable[[str, int], None],
        on_failure: Callable[[Exception], None],
        on_full: Callable[[str], None] = lambda reason: None,
        on_room: Callable[[], None] = lambda: None,
        reserve_bytes: int = 0,
    ) -> None:
        self._group = GroupCommit(logs, lambda log, durable: self._call(on_durable, log, durable))
        self._directory = next(iter(logs.values())).directory
        self._on_failure = on_failure
        self._on_full = on_full
        self._on_room = on_room
        self._reserve_bytes = reserve_bytes
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, list[LogEntry]] = {}
        """Entries of each log, of the loop's thread, that are enqueued together with the next urgent ones."""
        self._inputs: SimpleQueue[_Enqueued | _Saved] = SimpleQueue()
        self._saver = _Saver(store, self._inputs.put)
        self._saving = False
        self._save_error: OSError | None = None
        """Error of a save for lack of room, until it is handled."""
        self._save_lacks_room = False
        """True if the last save of rows failed for lack of room."""
        self._stopping = threading.Event()
        self._unchecked_bytes = 0
        """Bytes of records enqueued since the last check of the reserve."""
        self._full = False
        self._pause_s = 0.0
        """Pause before the next attempt while the disk is full."""
        self._thread = threading.Thread(target=self._work, name="wanderbus-commit", daemon=True)
        self._thread.start()

    @property
    def syncs(self) -> int:
        """Return how often a log was synced."""
        return self._group.syncs

    def append(self, log: str, entries: Sequence[LogEntry], *, urgent: bool = True) -> None:
        """Write ``entries`` to ``log`` after all earlier ones, and sync; if not ``urgent``, with the next urgent ones.

        An urgent call without entries syncs those that wait.
        """
        if entries:
            self._waiting.setdefault(log, []).extend(entries)
        if urgent:
            self._enqueue()

    def save(self, changes: Changes, offset: int) -> None:
        """Save rows that reflect every record below ``offset``, all of which were appended before."""
        self._enqueue((changes, offset))

    def between_saves(self, work: Callable[[], None]) -> None:
        """Run ``work``, which may not raise, in the thread that saves, while nothing is saved."""
        self._saver.run(work)

    def stop(self) -> None:
        """Write all that was enqueued, or discard it if the disk is full, and end the threads.

        Blocks for at most a few syncs. Nothing may be enqueued afterwards.
        """
        self._enqueue()
        self._stopping.set()
        self._enqueue()  # wakes the thread, so that it sees the flag
        self._thread.join()

    def _enqueue(self, rows: tuple[Changes, int] | None = None) -> None:
        entries, self._waiting = self._waiting, {}
        self._inputs.put(_Enqueued(entries, rows))

    def _work(self) -> None:
        try:
            self._check_reserve()
            while self._process_queue():
                self._commit()
        except Exception as error:
            self._call(self._on_failure, error)
        finally:
            self._saver.stop()

    def _process_queue(self) -> bool:
        """Wait for input, and take all there is; return whether to continue."""
        stopping = self._stopping.is_set()  # read before the last check of the queue: all input was enqueued by then
        items: list[_Enqueued | _Saved] = []
        if self._pause_s:
            self._stopping.wait(self._pause_s)
        elif not stopping or self._saving:
            with contextlib.suppress(Empty):
                items.append(self._inputs.get(timeout=RETRY_S_MAX if self._full else None))
        while not self._inputs.empty():
            items.append(self._inputs.get())
        more = [self._process(each) for each in items]
        return not stopping or any(more)

    def _process(self, item: _Enqueued | _Saved) -> bool:
        """Process input of the loop, or the result of a save; return whether there may be something to write."""
        if isinstance(item, _Enqueued):
            for log, entries in item.entries.items():
                self._group.append(log, entries)
                self._unchecked_bytes += sum(len(payload) for _, _, payload in entries)
            if item.rows is not None:
                self._group.save(*item.rows)
            return bool(item.entries or item.rows)
        self._saving = False
        if isinstance(item.error, OSError) and is_full(item.error):
            self._group.give_back(item.rows)
            self._save_error = item.error
        elif item.error is not None:
            raise item.error
        self._save_lacks_room = self._save_error is not None
        self._unchecked_bytes += self._reserve_bytes
        return True

    def _commit(self) -> None:
        try:
            self._group.commit()
            self._save_rows()
        except OSError as error:
            if not is_full(error):
                raise
            self._wait_for_room(error)
        else:
            if self._save_lacks_room:
                return  # the result of the save shows whether there is room
            self._pause_s = 0.0
            # Not each time: the loop would wait for the interpreter lock meanwhile.
            if self._full or self._unchecked_bytes * RESERVE_CHECKS >= self._reserve_bytes:
                self._check_reserve()

    def _save_rows(self) -> None:
        """Give the due rows to the saver; raise ``OSError`` once if the last save failed for lack of room."""
        if self._save_error is not None:
            error, self._save_error = self._save_error, None
            raise error
        if not self._saving and (rows := self._group.take_rows()) is not None:
            self._saving = True
            self._saver.save(rows)

    def _wait_for_room(self, error: OSError) -> None:
        self._pause_s = min(2 * self._pause_s or RETRY_S_MIN, RETRY_S_MAX)
        self._set_full(f"{error.strerror} ({error.filename or self._directory})")
        if self._group.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            raise StorageError(
                f"the disk has been full for so long that {UNWRITTEN_BYTES_MAX} bytes of records wait in memory; "
                "free some space and start again"
            )

    def _check_reserve(self) -> None:
        """Report full below the reserve. Hysteresis: report room only 25 % above it."""
        self._unchecked_bytes = 0
        free = free_bytes(self._directory)
        if free is not None and free < self._reserve_bytes:
            self._set_full(f"{free} bytes are free, less than the reserve of {self._reserve_bytes} ({self._directory})")
        elif free is None or free >= self._reserve_bytes * 5 // 4:
            self._set_room()

    def _set_full(self, reason: str) -> None:
        if not self._full:
            self._full = True
            self._call(self._on_full, reason)

    def _set_room(self) -> None:
        if self._full:
            self._full = False
            self._call(self._on_room)

    def _call(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back on the loop; do nothing if the loop is closed, since nobody waits then."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
