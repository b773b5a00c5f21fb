"""Files and directories that hold secrets are for their owner alone; one that others can read is warned of."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import stat
from pathlib import Path

_log = logging.getLogger("wanderbus.config")

_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def warn_if_open(path: Path, holds: str) -> None:
    """Log one line if others can read what is at ``path`` and ``holds`` this; say how to close it."""
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if mode & _READ_BY_OTHERS:
            closed = "700" if stat.S_ISDIR(mode) else "600"
            _log.warning(
                "%s holds %s and can be read by others: chmod %s %s", path, holds, closed, shlex.quote(str(path))
            )


def make_private_directory(directory: Path) -> None:
    """Make ``directory`` and what it is in, each for its owner alone (XDG Base Directory); ``OSError`` if it cannot be.

    Those that are there stay as they are.
    """
    if not directory.is_dir():
        make_private_directory(directory.parent)
        directory.mkdir(0o700, exist_ok=True)


def make_private(path: Path) -> None:
    """Make the file that another library is to fill, for its owner alone; one that is there stays as it is."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
