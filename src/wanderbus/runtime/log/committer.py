"""Group commit: one thread writes and syncs the log while the loop goes on, another saves the state (DESIGN 8).

Whatever was handed over while the last sync ran goes into the next one. Rows are saved once the records they reflect
are durable, and no record waits for that. A full disk is waited for: what was handed over stays here, in its order,
and nothing of it is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from wanderbus.errors import StorageError
from wanderbus.runtime.files.disk import free_bytes, is_full
from wanderbus.runtime.files.state_store import StateStore
from wanderbus.runtime.log.event_log import EventLog

LogEntry = tuple[int, int, bytes]
Changes = Mapping[str, Mapping[str, bytes | None]]
Rows = tuple[Changes, int]
"""Changed rows, and the offset below which they reflect every record."""

RETRY_S_MIN: Final = 0.02
RETRY_S_MAX: Final = 1.0
"""Pauses between two tries to write to a full disk: each is twice the one before."""

UNWRITTEN_BYTES_MAX: Final = 64 * 2**20
"""Records that may wait in memory for a full disk. Publishes are refused by then; what still comes is small (a
device that took something, came or went), and so much of it that the disk has been full for very long."""

RESERVE_LOOKS: Final = 8
"""How often the reserve is looked at, at least, while as much as it is written."""


class _Handed(NamedTuple):
    """From the loop: what is to be written."""

    entries: Sequence[LogEntry]
    rows: Rows | None


class _Saved(NamedTuple):
    """From the thread that saves: ``rows`` are in the store, or why they are not."""

    rows: Rows
    error: Exception | None


class GroupCommit:
    """What was handed over and is not on disk yet, and the order in which it gets there; without a thread."""

    def __init__(self, log: EventLog, on_durable: Callable[[int], None]) -> None:
        self.syncs = 0
        self._log = log
        self._on_durable = on_durable
        self._entries: list[LogEntry] = []
        self._rows: dict[str, dict[str, bytes | None]] = {}
        self._rows_offset: int | None = None

    @property
    def unwritten_bytes(self) -> int:
        """Return how many bytes of records wait."""
        return sum(len(payload) for _, _, payload in self._entries)

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Have ``entries`` written after all before them, and synced."""
        self._entries += entries

    def save(self, changes: Changes, offset: int) -> None:
        """Have rows saved that reflect every record below ``offset``; of one row only the last state counts."""
        for table, rows in changes.items():
            self._rows.setdefault(table, {}).update(rows)
        self._rows_offset = offset

    def commit(self) -> None:
        """Bring the records to the disk. After ``OSError`` for want of room the same call may be tried again."""
        if self._entries:
            written = self._log.next_offset - self._entries[0][0]
            self._log.append(self._entries[written:])
            durable = self._log.sync()
            self._entries = []
            self.syncs += 1
            self._on_durable(durable)

    def take_rows(self) -> Rows | None:
        """Return the rows that may be saved after a commit, which are the caller's to save; None if there are none."""
        if self._rows_offset is None:
            return None
        rows: Rows = self._rows, self._rows_offset
        self._rows, self._rows_offset = {}, None
        return rows

    def give_back(self, rows: Rows) -> None:
        """Have ``rows``, which could not be saved, saved with those that came since."""
        newer = self.take_rows()
        for changes, offset in filter(None, (rows, newer)):
            self.save(changes, offset)


class _Saver:
    """Saves rows in a thread of its own, one lot at a time, and reports each."""

    def __init__(self, store: StateStore, report: Callable[[_Saved], None]) -> None:
        self._store = store
        self._report = report
        self._given: SimpleQueue[Rows | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="wanderbus-save", daemon=True)
        self._thread.start()

    def save(self, rows: Rows) -> None:
        self._given.put(rows)

    def stop(self) -> None:
        self._given.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (rows := self._given.get()) is not None:
            error: Exception | None = None
            try:
                self._store.save(*rows)
            except Exception as failure:
                error = failure
            self._report(_Saved(rows, error))


class Committer:
    """Owns the log and the store of a running server.

    ``on_durable(next_offset)``, ``on_full(reason)``, ``on_room()`` and ``on_failure(error)`` are called on the loop.
    The disk counts as full when it takes no more, and before that when less than ``reserve_bytes`` are free, so that
    what cannot be refused still has room; that is looked at whenever rows or many records were written. After a
    failure nothing more is written, so nothing more is acknowledged.
    """

    def __init__(
        self,
        log: EventLog,
        store: StateStore,
        *,
        on_durable: Callable[[int], None],
        on_failure: Callable[[Exception], None],
        on_full: Callable[[str], None] = lambda reason: None,
        on_room: Callable[[], None] = lambda: None,
        reserve_bytes: int = 0,
    ) -> None:
        self._group = GroupCommit(log, lambda durable: self._call(on_durable, durable))
        self._directory = log.directory
        self._on_failure = on_failure
        self._on_full = on_full
        self._on_room = on_room
        self._reserve_bytes = reserve_bytes
        self._loop = asyncio.get_running_loop()
        self._waiting: list[LogEntry] = []
        """Of the loop's thread: entries that are handed over with the next that somebody waits for."""
        self._handed: SimpleQueue[_Handed | _Saved] = SimpleQueue()
        self._saver = _Saver(store, self._handed.put)
        self._saving = False
        self._refused: OSError | None = None
        """Why there was no room for rows, until that is known."""
        self._roomless = False
        """Whether there was no room for rows, until there is."""
        self._stopping = threading.Event()
        self._unlooked_bytes = 0
        """Records that were handed over since the reserve was looked at."""
        self._full = False
        self._pause_s = 0.0
        """How long to wait before the next try, while the disk takes nothing."""
        self._thread = threading.Thread(target=self._work, name="wanderbus-commit", daemon=True)
        self._thread.start()

    @property
    def syncs(self) -> int:
        """Return how often the log was synced."""
        return self._group.syncs

    def append(self, entries: Sequence[LogEntry], *, urgent: bool = True) -> None:
        """Write ``entries`` after all before them, and sync; if not ``urgent``, with what is handed over next."""
        self._waiting += entries
        if urgent:
            self._hand_over()

    def save(self, changes: Changes, offset: int) -> None:
        """Save rows that reflect every record below ``offset``, all of which were given before."""
        self._hand_over((changes, offset))

    def stop(self) -> None:
        """Finish what was given, or give it up if the disk is full, and end the threads.

        Blocks for at most a few syncs. Nothing may be given any more.
        """
        self._hand_over()
        self._stopping.set()
        self._hand_over()  # so that it looks
        self._thread.join()

    def _hand_over(self, rows: tuple[Changes, int] | None = None) -> None:
        entries, self._waiting = self._waiting, []
        self._handed.put(_Handed(entries, rows))

    def _work(self) -> None:
        try:
            self._look_at_reserve()
            while self._take_over():
                self._try()
        except Exception as error:
            self._call(self._on_failure, error)
        finally:
            self._saver.stop()

    def _take_over(self) -> bool:
        """Wait for something to do, and take all there is; return whether to go on."""
        stopping = self._stopping.is_set()  # before the last look: all was handed over by then
        taken: list[_Handed | _Saved] = []
        if self._pause_s:
            self._stopping.wait(self._pause_s)
        elif not stopping or self._saving:
            with contextlib.suppress(Empty):
                taken.append(self._handed.get(timeout=RETRY_S_MAX if self._full else None))
        while not self._handed.empty():
            taken.append(self._handed.get())
        more = [self._take(each) for each in taken]
        return not stopping or any(more)

    def _take(self, handed: _Handed | _Saved) -> bool:
        """Take what the loop gives or what became of rows; return whether there may be something to write."""
        if isinstance(handed, _Handed):
            self._group.append(handed.entries)
            self._unlooked_bytes += sum(len(payload) for _, _, payload in handed.entries)
            if handed.rows is not None:
                self._group.save(*handed.rows)
            return bool(handed.entries or handed.rows)
        self._saving = False
        if isinstance(handed.error, OSError) and is_full(handed.error):
            self._group.give_back(handed.rows)
            self._refused = handed.error
        elif handed.error is not None:
            raise handed.error
        self._roomless = self._refused is not None
        self._unlooked_bytes += self._reserve_bytes
        return True

    def _try(self) -> None:
        try:
            self._group.commit()
            self._save_rows()
        except OSError as error:
            if not is_full(error):
                raise
            self._wait_for_room(error)
        else:
            if self._roomless:
                return  # what becomes of the rows says whether there is room
            self._pause_s = 0.0
            # Not each time: the loop would wait for the interpreter meanwhile.
            if self._full or self._unlooked_bytes * RESERVE_LOOKS >= self._reserve_bytes:
                self._look_at_reserve()

    def _save_rows(self) -> None:
        """Have the rows saved that are due; raise ``OSError`` once where there was no room for them."""
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        if not self._saving and (rows := self._group.take_rows()) is not None:
            self._saving = True
            self._saver.save(rows)

    def _wait_for_room(self, error: OSError) -> None:
        self._pause_s = min(2 * self._pause_s or RETRY_S_MIN, RETRY_S_MAX)
        self._set_full(f"{error.strerror} ({error.filename or self._directory})")
        if self._group.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            raise StorageError(
                f"the disk has been full for so long that {UNWRITTEN_BYTES_MAX} bytes of records wait in memory; "
                "make room and start again"
            )

    def _look_at_reserve(self) -> None:
        """Be full below the reserve, and no more when a quarter above it: at the edge nothing is gained by turns."""
        self._unlooked_bytes = 0
        free = free_bytes(self._directory)
        if free is not None and free < self._reserve_bytes:
            self._set_full(f"{free} bytes are free, {self._reserve_bytes} are kept in reserve ({self._directory})")
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
        """Tell the loop, unless it is gone: then nobody waits for the answer either."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
