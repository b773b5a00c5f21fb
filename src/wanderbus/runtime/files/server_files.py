"""A server's data directory: its identity, its ports, its log, and its state, brought up to date.

The log is the source of truth. A damaged file that can be rebuilt from the log is rebuilt, and one line is logged. A
log whose oldest records are removed cannot rebuild the state, which then has a second generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from wanderbus.broker.state.tables import Stored
from wanderbus.errors import LogCorrupt, StateCorrupt, StorageError
from wanderbus.records import AnyRecord, decode_record
from wanderbus.runtime.files.disk import SYSTEM, Disk, make_directory
from wanderbus.runtime.files.identity_file import FILE_NAME as IDENTITY
from wanderbus.runtime.files.identity_file import Identity, load_identity, save_identity
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.files.state_generations import StateGenerations
from wanderbus.runtime.log.event_log import SEGMENT_BYTES_MAX, EventLog


class LoggedState(Protocol):
    """A state that follows from the records of the log. Its rows are stored now and then, so that a start is short."""

    offset: int
    """Records below this have been applied."""

    @property
    def tables(self) -> Sequence[Stored]:
        """Return every table, in the order in which they are loaded."""
        ...

    def load(self, rows: Mapping[str, Iterable[tuple[str, bytes]]], offset: int) -> None:
        """Load the rows, which reflect every record below ``offset``; ``msgspec.DecodeError`` if they are damaged."""
        ...

    def apply(self, offset: int, record: AnyRecord) -> None:
        """Change the state by the record at ``offset``, which is the next one; ignore a record of another state."""
        ...

    def first_needed(self) -> Mapping[str, int]:
        """Return the offset of the oldest record that the state still reads, by the name of what reads it."""
        ...

    def changes(self) -> Mapping[str, Mapping[str, bytes | None]]:
        """Return the rows changed since the last call, by table; they reflect every record below :attr:`offset`."""
        ...


State = TypeVar("State", bound=LoggedState)


class ServerFiles:
    """The open files of one server; made by :meth:`open`."""

    def __init__(
        self,
        directory: Path,
        identity: Identity,
        reset_key: bytes,
        log: EventLog,
        store: StateGenerations,
        disk: Disk,
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.reset_key = reset_key
        """Generates the tokens by which agents recognize a reset of this server, over restarts (DESIGN 6.3)."""
        self.log = log
        self.store = store
        self._disk = disk

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        disk: Disk = SYSTEM,
        vfs: str | None = None,
        new_name: str | None = None,
    ) -> ServerFiles:
        """Open or create a data directory; :class:`StorageError` names in one line the unusable file and the cause.

        A new directory is accessible to its owner only: it holds events and keys. ``vfs`` names SQLite's system layer.
        ``new_name`` is the name of the server if the directory is new; a random one unless given.
        """
        try:
            make_directory(disk, directory, 0o700)
            log = EventLog.open(directory / "log", segment_bytes_max=segment_bytes_max, disk=disk)
            try:
                identity = load_identity(directory / IDENTITY, log, disk, new_name)
                reset_key = kept_key(directory / "reset.key", disk)
                store = StateGenerations.open(directory, server=identity.server, log=log, disk=disk, vfs=vfs)
            except BaseException:
                log.close()
                raise
        except OSError as error:
            raise unusable(directory, error) from None
        return cls(directory, identity, reset_key, log, store, disk)

    def load_states(self, make: Callable[[], Sequence[State]]) -> Sequence[State]:
        """Return the states that ``make`` returns empty: with the stored rows, brought up to date from the log.

        If rows are damaged, the file is moved aside, and the other generation of the state is used, or new states are
        rebuilt from the whole log.
        """
        if self.store.offset > self.log.next_offset:
            raise LogCorrupt(
                f"{self.store.path} reflects {self.store.offset} records, {self.log.directory} holds "
                f"{self.log.next_offset}: segments are missing; put them back, or restore a copy that "
                "'wanderbus backup' made: other copies of a running server may not be usable"
            )
        while True:
            states = make()
            try:
                self._load_rows(states)
            except StateCorrupt as error:
                self.store.discard_newer(error)
            else:
                self._apply_log(states)
                return states

    def _load_rows(self, states: Iterable[LoggedState]) -> None:
        for state in states:
            try:
                state.load({table.name: self.store.load(table.name) for table in state.tables}, self.store.offset)
            except msgspec.DecodeError as error:
                raise StateCorrupt(f"{self.store.path} cannot be used ({error})") from None

    def _apply_log(self, states: Iterable[LoggedState]) -> None:
        offset = self.store.offset
        if (oldest := self.log.oldest_offset) > offset:
            raise LogCorrupt(
                f"{self.store.path} reflects {offset} records, {self.log.directory} begins at record {oldest}: "
                "segments are missing; put them back"
            )
        for frame in self.log.read(offset):
            try:
                record = decode_record(frame.payload)
            except msgspec.DecodeError as error:
                raise StateCorrupt(
                    f"record {frame.offset} in {self.log.directory} was written by another version: {error}"
                ) from None
            for state in states:
                state.apply(frame.offset, record)

    def keep_ports(self, ports: Mapping[str, int]) -> None:
        """Store the ports in use for the next start, by name; :class:`StorageError` if that fails."""
        self.identity = Identity(self.identity.server, {**self.identity.ports, **ports})
        try:
            save_identity(self.directory / IDENTITY, self.identity, self._disk)
        except OSError as error:
            raise unusable(self.directory, error) from None

    def close(self) -> None:
        """Close everything."""
        self.store.close()
        self.log.close()


def unusable(directory: Path, error: OSError) -> StorageError:
    """Return the error for a data directory, in one line."""
    where = f" ({error.filename})" if error.filename else ""
    return StorageError(f"the data directory {directory} cannot be used: {error.strerror}{where}")
