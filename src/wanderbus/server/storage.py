"""Log and state of one server, which its roles share: one writer, group commits, and saves of changed rows.

A role that keeps a state numbers its records by the log's offsets. Roles run in turns, and the host appends the records
of a turn before another role runs; the states of the other roles then go on at the same offset.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from wanderbus.errors import StorageError
from wanderbus.metrics import Sample
from wanderbus.records import SERVER_LOG
from wanderbus.runtime.files.server_files import LoggedState, ServerFiles
from wanderbus.runtime.log.committer import Committer, LogEntry
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.server.log_retention import LogRetention, NeededRecords

_log = logging.getLogger("wanderbus.server")

SAVE_S: Final = 1.0
"""Pause between two saves of the state that is derived from the log."""

RETAIN_S: Final = 5.0
"""Pause between two passes of log retention, and of the compaction of the state files."""

START_S_MAX: Final = 10.0
"""Timeout for the first record of a run."""


class Storage:
    """Log and states between :meth:`start` and :meth:`close`.

    :param files: the open data directory, which this closes
    :param states: the states of the roles, loaded
    :param keep: records that log retention keeps at least
    :param on_durable: called with a log and the offset below which every record of it is durable
    :param on_full: called when the disk becomes full, ``on_room`` when it has room again
    :param on_failure: called with the error after which nothing is written any more
    """

    def __init__(
        self,
        files: ServerFiles,
        states: Sequence[LoggedState],
        *,
        reserve_bytes: int,
        keep: Keep,
        on_durable: Callable[[str, int], None],
        on_full: Callable[[], None],
        on_room: Callable[[], None],
        on_failure: Callable[[StorageError], None],
    ) -> None:
        self.files = files
        self._states = states
        self._reserve_bytes = reserve_bytes
        self._retention = LogRetention(files.log, files.store, keep)
        self._on_durable = on_durable
        self._on_full = on_full
        self._on_room = on_room
        self._on_failure = on_failure
        self._shortage = ""
        """Reason why the disk counts as full, "" while it does not."""
        self._is_asked = False
        """True if the sync of a record was requested."""
        self._first = asyncio.Event()
        """Set when a first record is durable."""
        self._committer: Committer | None = None
        self._save_timer: asyncio.TimerHandle | None = None
        self._retain_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to write; the callbacks come in later turns of the loop."""
        self._committer = Committer(
            {SERVER_LOG: self.files.log},
            self.files.store,
            on_durable=self._written,
            on_failure=self._failed,
            on_full=self._filled,
            on_room=self._freed,
            reserve_bytes=self._reserve_bytes,
        )
        self._save_timer = asyncio.get_running_loop().call_later(SAVE_S, self._save_again)
        self._retain_again()

    def append(self, log: str, state: LoggedState, entries: Sequence[LogEntry], *, urgent: bool) -> None:
        """Enqueue records of ``state``, which are applied to it already, to be written to ``log`` and synced."""
        if self._committer is None:
            return
        self._is_asked = self._is_asked or urgent
        self._committer.append(log, entries, urgent=urgent)
        for other in self._states:
            if other is not state:
                other.offset = state.offset

    def metrics(self) -> Iterator[Sample]:
        """Yield the samples of the log as of the last pass of retention, and of the disk now."""
        end = self.files.log.durable_offset
        yield Sample("log_end", end)
        yield Sample("log_bytes", self._retention.log_bytes)
        for reader, offset in self._retention.reader_offsets.items():
            yield Sample("log_reader_lag", max(0, end - offset), (reader,))
        with suppress(OSError):
            yield Sample("disk_free_bytes", shutil.disk_usage(self.files.directory).free)

    async def until_first(self) -> None:
        """Return when a first record of this run is durable; at once if no role wrote one when it began.

        :raises StorageError: the disk is full, or too slow
        """
        if not self._is_asked:
            return
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._first.wait()
        except TimeoutError:
            if self._shortage:
                raise StorageError(f"the disk is full; free some space and start again: {self._shortage}") from None
            raise StorageError(
                f"nothing was written to {self.files.directory} in {START_S_MAX:g} s; check the disk, and start again"
            ) from None

    def end(self) -> None:
        """Write what was enqueued, and nothing afterwards; blocks for at most a few syncs."""
        committer, self._committer = self._committer, None
        if committer is not None:
            committer.stop()

    async def close(self) -> None:
        """Save the states and close the files."""
        for timer in (self._save_timer, self._retain_timer):
            if timer is not None:
                timer.cancel()
        self._save()
        await asyncio.to_thread(self.end)
        self.files.close()

    def _written(self, log: str, durable: int) -> None:
        self._first.set()
        self._on_durable(log, durable)

    def _filled(self, reason: str) -> None:
        self._shortage = reason
        _log.error("the disk is full, new events and subscriptions are refused until there is room: %s", reason)
        self._on_full()

    def _freed(self) -> None:
        self._shortage = ""
        _log.warning("the disk has room again, events are accepted again (%s)", self.files.directory)
        self._on_room()

    def _failed(self, error: Exception) -> None:
        self._committer = None
        self._on_failure(
            StorageError(f"writing to {self.files.directory} failed, nothing more is acknowledged: {error}")
        )

    def _save_again(self) -> None:
        self._save()
        self._save_timer = asyncio.get_running_loop().call_later(SAVE_S, self._save_again)

    def _retain_again(self) -> None:
        if self._committer is not None:
            needed: dict[str, int] = {}
            for state in self._states:
                for name, offset in state.first_needed().items():
                    needed[name] = min(offset, needed.get(name, offset))
            history = NeededRecords(self._states[0].offset, needed)
            self._committer.between_saves(lambda: self._retention.run(time.time_ns() // 1_000, history))
            if not self._shortage:
                self._committer.between_saves(self.files.store.compact)
        self._retain_timer = asyncio.get_running_loop().call_later(RETAIN_S, self._retain_again)

    def _save(self) -> None:
        """Enqueue the changed rows of every state."""
        if self._committer is None:
            return
        changes = {table: rows for state in self._states for table, rows in state.changes().items()}
        if changes:
            self._committer.save(changes, self._states[0].offset)
