"""Copy of the newest valid state file of a data directory, while a server may be saving to it."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import apsw

from wanderbus.errors import StateCorrupt, StorageError
from wanderbus.runtime.files.file_modes import make_private
from wanderbus.runtime.files.state_description import opened_unchanged, state_offsets
from wanderbus.runtime.files.state_store import BUSY_TIMEOUT_MS, StateStore


def copy_state(directory: Path, copy: Path) -> int | None:
    """Copy the state of ``directory`` to the new file ``copy``, synced; return the offset that it reflects.

    Every row of the copy is checked. A damaged file is passed over for the other generation; returns None, and leaves
    nothing, if there is no valid one. Raises :class:`StorageError` if a file cannot be read.
    """
    offsets = {name: offset for name, offset in state_offsets(directory).items() if offset is not None}
    for name in sorted(offsets, key=lambda name: offsets[name], reverse=True):
        try:
            _copy(directory / name, copy)
            return _checked_offset(copy)
        except StateCorrupt:
            copy.unlink()
    return None


def _copy(path: Path, copy: Path) -> None:
    make_private(copy)
    try:
        with opened_unchanged(path) as source:
            source.set_busy_timeout(BUSY_TIMEOUT_MS)
            written = apsw.Connection(str(copy))
            try:
                with written.backup("main", source, "main") as backup:
                    # One step reads everything in one transaction, so a save meanwhile does not begin it again.
                    backup.step()
            finally:
                written.close()
    except apsw.CorruptError as error:
        raise StateCorrupt(f"{path} is damaged ({error})") from None
    except apsw.Error as error:
        raise StorageError(f"{path} cannot be copied: {error}") from None


def _checked_offset(copy: Path) -> int:
    """Return the offset of a copy whose rows are all valid, and make the copy durable."""
    store = StateStore.open(copy)
    try:
        for table in store.tables:
            deque(store.load(table), maxlen=0)
        offset = store.offset
    finally:
        store.close()
    descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return offset
