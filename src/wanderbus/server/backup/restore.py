"""Restoration of a backup: what it will cost, and the data directory made from it, complete or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.runtime.files.file_modes import lock_file
from wanderbus.runtime.files.fresh_directory import FreshDirectory, fresh_directory
from wanderbus.runtime.files.identity_file import FILE_NAME as IDENTITY
from wanderbus.runtime.files.identity_file import stored_identity
from wanderbus.runtime.files.restored_mark import FILE_NAME as RESTORED
from wanderbus.runtime.files.server_files import unusable
from wanderbus.runtime.log.event_log import LOCK
from wanderbus.server.backup.cost import RestoreCost, cost_of
from wanderbus.server.backup.manifest import Manifest, check_files, read_manifest


class Restoration:
    """A backup and the directory to which it is to be restored; both are checked when this is made.

    :raises ConfigurationError: the directory holds something else than data of the same server
    :raises StorageError: the backup is damaged, or a server uses the directory
    """

    def __init__(self, backup: Path, data_dir: Path) -> None:
        self.backup = backup
        self.data_dir = data_dir
        self.manifest: Manifest = read_manifest(backup)
        check_files(backup, self.manifest)
        self.is_occupied = _is_occupied(data_dir)
        """True if the directory has data, which a restoration moves aside."""
        if self.is_occupied:
            _check_same_server(self.manifest, data_dir)
            with _unlocked(data_dir):
                pass

    def cost(self) -> RestoreCost | None:
        """Return what the present data has beyond the backup; None if there is no present data to compare with."""
        return cost_of(self.manifest, self.data_dir) if self.is_occupied else None

    def restore(self) -> Path | None:
        """Make the data directory; return the path to which its former content was moved, None if it had none.

        :raises StorageError: a file cannot be read or written, or a server was started meanwhile
        """
        cost = self.cost()
        if not self.is_occupied:
            with fresh_directory(self.data_dir) as fresh:
                self._fill(fresh, cost)
            return None
        aside = _unused_name(self.data_dir)
        with _unlocked(self.data_dir), fresh_directory(self.data_dir, aside) as fresh:
            self._fill(fresh, cost)
        return aside

    def _fill(self, fresh: FreshDirectory, cost: RestoreCost | None) -> None:
        is_loss = cost is None or cost.records or cost.is_other_history or cost.unknown
        if is_loss and RESTORED not in self.manifest.files:
            fresh.write(RESTORED, f"it was restored from the backup {self.backup}".encode())
        for name in self.manifest.files:
            fresh.write(name, (self.backup / name).read_bytes())
        check_files(fresh.path, self.manifest)


def _is_occupied(data_dir: Path) -> bool:
    """Return whether there is a data directory with content; :class:`ConfigurationError` if it is something else."""
    if not data_dir.exists() or (data_dir.is_dir() and not any(data_dir.iterdir())):
        return False
    if not (data_dir / "log").is_dir():
        raise ConfigurationError(f"{data_dir} is not the data directory of a server, and not replaced; give another")
    return True


def _check_same_server(manifest: Manifest, data_dir: Path) -> None:
    """Raise unless the data are those of the backup's server; a damaged identity may be any."""
    path = data_dir / IDENTITY
    identity = stored_identity(path) if path.exists() else None
    if identity is not None and identity.server != manifest.server:
        raise ConfigurationError(
            f"{data_dir} is of the server {identity.server}, the backup of {manifest.server}; give another directory"
        )


@contextmanager
def _unlocked(data_dir: Path) -> Iterator[None]:
    """Hold the lock of the log, so that no server starts there; :class:`StorageError` if one runs."""
    try:
        lock = lock_file(data_dir / "log" / LOCK)
    except OSError as error:
        raise unusable(data_dir, error) from None
    if lock is None:
        raise StorageError(f"a server uses {data_dir}; stop it first")
    try:
        yield
    finally:
        os.close(lock)


def _unused_name(data_dir: Path) -> Path:
    """Return a path beside the data directory that does not exist."""
    names = (data_dir.with_name(f"{data_dir.name}.replaced-{number}") for number in count(1))
    return next(path for path in names if not path.exists())
