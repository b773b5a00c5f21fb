"""Lock files, each held by one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from wanderbus.runtime.files.file_modes import open_own


def lock_file(path: Path, flags: int = os.O_RDWR) -> int | None:
    """Open ``path`` and lock it until the descriptor is closed; return None if another process holds the lock.

    A missing file is created, readable by its owner only. Raises ``OSError`` if the file cannot be opened or locked, or
    belongs to another user.
    """
    descriptor = open_own(path, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
