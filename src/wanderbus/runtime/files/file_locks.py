"""Files that one process has at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from wanderbus.runtime.files.file_modes import open_own


def lock_file(path: Path, flags: int = os.O_RDWR) -> int | None:
    """Open ``path`` and lock it until the descriptor is closed; None while somebody else has it.

    A file that is not there is made, for its owner alone. Raises ``OSError`` if it cannot be opened or locked, or is
    another user's.
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
