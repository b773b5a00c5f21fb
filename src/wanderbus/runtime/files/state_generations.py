"""The state file, and its second generation once the log can no longer rebuild it (DESIGN 5.1).

While the log is complete there is one file. Before the first segment is removed, :meth:`StateGenerations.secure` makes
a second one; from then on each save goes to the older of the two, together with the rows that it missed. Each has its
own offset and checksums. At the start the newer valid one is used. The other one replaces it if it is damaged: the log
has every record from the offset of the older one on, because segments are removed only below the offset that
:meth:`StateGenerations.secure` returns.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import apsw

from wanderbus.errors import StateCorrupt, StorageError
from wanderbus.runtime.files.disk import Disk, is_full, sync_directory
from wanderbus.runtime.files.sqlite_files import put_aside
from wanderbus.runtime.files.sqlite_room import SPARE_BYTES_MAX
from wanderbus.runtime.files.state_store import StateStore
from wanderbus.runtime.log.event_log import EventLog

_log = logging.getLogger("wanderbus.server")

NAMES: Final = ("state.db", "state-2.db")
"""Names of the generations; only the first exists while the log is complete."""

_FRESH: Final = "state.new"
"""Name of a generation until it is complete."""

Changes = Mapping[str, Mapping[str, bytes | None]]


class StateGenerations:
    """The open state of a data directory; made by :meth:`open`.

    After :meth:`open`, one thread at a time uses it.
    """

    def __init__(
        self,
        directory: Path,
        stores: Sequence[StateStore],
        log: EventLog,
        server: str,
        disk: Disk,
        vfs: str | None,
    ) -> None:
        self._directory = directory
        self._newer = stores[0]
        self._older = stores[1] if len(stores) > 1 else None
        self._missed: dict[str, dict[str, bytes | None]] | None = None
        """Rows that the newer generation has and the older one lacks; None if they are unknown."""
        self._may_compact = True
        """False after an error of a compaction."""
        self._log = log
        self._server = server
        self._disk = disk
        self._vfs = vfs

    @classmethod
    def open(
        cls, directory: Path, *, server: str, log: EventLog, disk: Disk, vfs: str | None = None
    ) -> StateGenerations:
        """Open the state of ``directory``, or create an empty one at offset 0 for the server named ``server``.

        A damaged file is moved aside, with one line in the log, if the other generation or the event log has what it
        held. Raises :class:`StateCorrupt` if neither has, and :class:`StorageError` as :meth:`StateStore.open` does.
        """
        stores: list[StateStore] = []
        damages: list[tuple[Path, StateCorrupt]] = []
        try:
            for path in _existing(directory):
                try:
                    stores.append(StateStore.open(path, server=server, vfs=vfs))
                except StateCorrupt as error:
                    damages.append((path, error))
            _put_aside(damages, stores, log)
            if not stores:
                stores.append(StateStore.open(directory / NAMES[0], server=server, vfs=vfs))
        except StorageError:
            for store in stores:
                store.close()
            raise
        stores.sort(key=lambda store: store.offset, reverse=True)
        found = cls(directory, stores, log, server, disk, vfs)
        if found._older is None and not damages and log.oldest_offset:
            _log.warning("%s is missing: it is made again from %s", found._spare, found.path.name)
        return found

    @property
    def path(self) -> Path:
        """Return the path of the newer generation."""
        return self._newer.path

    @property
    def offset(self) -> int:
        """Return the offset below which the newer generation contains every record of the log."""
        return self._newer.offset

    @property
    def offsets(self) -> Mapping[str, int]:
        """Return the offset of each generation, by file name."""
        return {store.path.name: store.offset for store in (self._newer, self._older) if store is not None}

    def load(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Yield the rows of ``table`` in order of their keys; :class:`StateCorrupt` if one is damaged."""
        return self._newer.load(table)

    def discard_newer(self, why: StateCorrupt) -> None:
        """Go back to the older generation, or to an empty state if the log is complete, because rows are damaged.

        Raises :class:`StateCorrupt` if there is neither.
        """
        self._newer.close()
        others = [self._older] if self._older is not None else []
        _put_aside([(self._newer.path, why)], others, self._log)
        self._newer = others[0] if others else StateStore.open(self.path, server=self._server, vfs=self._vfs)
        self._older, self._missed = None, None

    def save(self, changes: Changes, offset: int) -> None:
        """Store ``changes`` and ``offset`` in the older generation, which becomes the newer one.

        ``OSError`` means that there is no room: the files then have what they had, and the call may be retried.
        """
        if self._older is None and not self._log.oldest_offset:
            self._newer.save(changes, offset)
            return
        older, missed = self._caught_up()
        older.save(_joined(missed, changes), offset)
        self._newer, self._older = older, self._newer
        self._missed = {table: dict(rows) for table, rows in changes.items()}

    def secure(self) -> int | None:
        """Bring two generations to the same offset, durably; return it: the log may be removed below.

        Returns None if another reader of a file prevents it for now. ``OSError`` means that there is no room.
        """
        older, missed = self._caught_up()
        if older.offset < self._newer.offset:
            older.save(missed, self._newer.offset)
            self._missed = {}
        if not (self._newer.sync() and older.sync()):
            return None
        return min(self._newer.offset, older.offset)

    def compact(self, spare_bytes_max: int = SPARE_BYTES_MAX) -> None:
        """Give the room of deleted rows to the system, if it is more; an error ends this until the next start.

        The rows stay as they are. A full disk is no such error: the next call tries again.
        """
        if not self._may_compact:
            return
        try:
            for store in filter(None, (self._newer, self._older)):
                store.compact(spare_bytes_max)
        except (OSError, apsw.Error) as error:
            if not is_full(error):
                self._may_compact = False
                _log.error("the state files in %s are not compacted until the next start: %s", self._directory, error)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        self._newer.close()
        if self._older is not None:
            self._older.close()

    @property
    def _spare(self) -> Path:
        """Return the path that the newer generation does not use."""
        return next(self._directory / name for name in NAMES if name != self._newer.path.name)

    def _caught_up(self) -> tuple[StateStore, Changes]:
        """Return the older generation and the rows that it lacks; make it if there is none."""
        older = self._older
        if older is not None and self._missed is None:
            try:
                older.level(self._newer)
            except StateCorrupt as error:
                older.close()
                _put_aside([(older.path, error)], [self._newer], self._log)
                older = None
        if older is None:
            older = self._made()
        self._older = older
        if self._missed is None:
            self._missed = {}
        return older, self._missed

    def _made(self) -> StateStore:
        """Write another generation; it gets its name when it is complete and durable."""
        fresh, spare = self._directory / _FRESH, self._spare
        for path in (fresh, spare):  # a write-ahead log without its file would be applied to the next one
            for suffix in ("-wal", "-shm", "-journal", ""):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.unlink(Path(f"{path}{suffix}"))
        store = StateStore.open(fresh, server=self._server, vfs=self._vfs)
        try:
            store.level(self._newer)
        finally:
            store.close()  # also makes it durable, and removes SQLite's companions of the file
        self._disk.replace(fresh, spare)
        sync_directory(self._disk, self._directory)
        return StateStore.open(spare, server=self._server, vfs=self._vfs)


def _existing(directory: Path) -> list[Path]:
    return [path for name in NAMES if (path := directory / name).exists()]


def _joined(missed: Changes, changes: Changes) -> Changes:
    """Return the rows of both; where both have a row, that of ``changes``."""
    return {table: {**missed.get(table, {}), **changes.get(table, {})} for table in dict.fromkeys((*missed, *changes))}


def _put_aside(damages: list[tuple[Path, StateCorrupt]], others: list[StateStore], log: EventLog) -> None:
    """Move damaged files aside; :class:`StateCorrupt` if nothing can replace them, and nothing is changed then."""
    if damages and not others and log.oldest_offset:
        raise StateCorrupt(
            f"{damages[0][1]}, and the log begins at record {log.oldest_offset}, so it cannot be rebuilt; put the "
            "earlier segments back, or restore the file from a copy"
        )
    for path, why in damages:
        aside = put_aside(path)
        if others:
            _log.warning("%s: moved it to %s; %s replaces it", why, aside.name, others[0].path.name)
        else:
            _log.warning(
                "%s: moved it to %s; the state is rebuilt from the log (%s records)", why, aside.name, log.next_offset
            )
