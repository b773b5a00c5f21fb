"""A server's data directory: who it is, which ports it had, its log and its state, brought up to date."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.broker.state import BrokerState
from wanderbus.errors import LogCorrupt, StateCorrupt, StorageError
from wanderbus.records import decode_record
from wanderbus.runtime.disk import SYSTEM, Disk, make_directory, replace_file
from wanderbus.runtime.event_log import SEGMENT_BYTES_MAX, EventLog
from wanderbus.runtime.state_store import StateStore

_KEY_BYTES: Final = 32


class Identity(msgspec.Struct, frozen=True):
    """What stays the same over restarts: the name in event ids, and the ports that agents know (DESIGN 6.3)."""

    server: str
    broker_port: int = 0
    data_port: int = 0
    """Where reliable UDP is received."""
    stream_port: int = 0
    """Where the data channel's TCP connections are accepted."""


class ServerFiles:
    """The open files of one server; made by :meth:`open`."""

    def __init__(
        self, directory: Path, identity: Identity, reset_key: bytes, log: EventLog, store: StateStore, disk: Disk
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.reset_key = reset_key
        """Makes the tokens by which agents know a reset of this server, over restarts (DESIGN 6.3)."""
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
    ) -> ServerFiles:
        """Open or begin a data directory; :class:`StorageError` in one line says what cannot be used and why.

        A new directory is for its owner alone: events and keys are in it. ``vfs`` names SQLite's way to the disk.
        """
        try:
            make_directory(disk, directory, 0o700)
            log = EventLog.open(directory / "log", segment_bytes_max=segment_bytes_max, disk=disk)
            try:
                identity = _load_identity(directory / "server.json", disk)
                reset_key = kept_key(directory / "reset.key", disk)
                store = StateStore.open(directory / "state.db", server=identity.server, vfs=vfs)
            except BaseException:
                log.close()
                raise
        except OSError as error:
            raise unusable(directory, error) from None
        return cls(directory, identity, reset_key, log, store, disk)

    def load_state(self, publishes_remembered: int) -> BrokerState:
        """Return the state: the stored rows, brought up to date from the log."""
        state = BrokerState(self.identity.server, publishes_remembered)
        if self.store.offset > self.log.next_offset:
            raise LogCorrupt(
                f"{self.store.path} reflects {self.store.offset} records, {self.log.directory} holds "
                f"{self.log.next_offset}: segments are missing; put them back"
            )
        try:
            state.load({table.name: self.store.load(table.name) for table in state.tables}, self.store.offset)
            for frame in self.log.read(state.offset):
                state.apply(frame.offset, decode_record(frame.payload))
        except msgspec.DecodeError as error:
            raise StateCorrupt(
                f"{self.store.path} or {self.log.directory} was written by another version: {error}"
            ) from None
        return state

    def keep_ports(self, broker_port: int, data_port: int, stream_port: int) -> None:
        """Remember the ports for the next start; :class:`StorageError` if that cannot be written."""
        self.identity = Identity(self.identity.server, broker_port, data_port, stream_port)
        try:
            _save_identity(self.directory / "server.json", self.identity, self._disk)
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


def _load_identity(path: Path, disk: Disk) -> Identity:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        identity = Identity(f"wb{secrets.token_hex(3)}")
        _save_identity(path, identity, disk)
        return identity
    except msgspec.DecodeError:
        raise StateCorrupt(
            f'{path} is damaged; write {{"server": NAME}} with the name that event ids in the log begin with'
        ) from None


def _save_identity(path: Path, identity: Identity, disk: Disk) -> None:
    replace_file(disk, path, msgspec.json.encode(identity) + b"\n")


def kept_key(path: Path, disk: Disk = SYSTEM) -> bytes:
    """Return the secret in the file at ``path``, which is made if there is none.

    Raises :class:`StateCorrupt` for one that was damaged, ``OSError`` if it can be neither read nor made.
    """
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = secrets.token_bytes(_KEY_BYTES)
        replace_file(disk, path, key)
    if len(key) != _KEY_BYTES:
        raise StateCorrupt(f"{path} is damaged; delete it, and another is made")
    return key
