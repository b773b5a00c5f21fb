"""Files and directories that hold secrets are for their owner alone; one that others can read is warned of."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import stat
from pathlib import Path

_log = logging.getLogger("wanderbus.config")

_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
_ROOT = 0


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


def warn_if_others_write(directory: Path, holds: str) -> None:
    """Log one line if everybody can exchange the files in ``directory``, which ``holds`` this."""
    with contextlib.suppress(OSError):
        mode = directory.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            _log.warning(
                "%s holds %s and can be written by others: chmod go-w %s",
                directory,
                holds,
                shlex.quote(str(directory)),
            )


def open_own(path: Path, flags: int = os.O_RDWR) -> int:
    """Open the file at ``path``; make it, for its owner alone, if it is not there.

    Where others can write, one of them may have put a file there first, or a link to a file of ours. Raises
    ``PermissionError`` if the file, or the link, is another user's, and ``OSError`` if it cannot be opened. Root may
    use the files of whoever owns the directory.
    """
    flags |= os.O_CREAT | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        return os.open(path, flags | os.O_EXCL, 0o600)
    owners = {os.geteuid(), _ROOT}
    if os.geteuid() == _ROOT:
        owners.add(path.parent.stat().st_uid)
    if path.lstat().st_uid not in owners:
        raise PermissionError(errno.EPERM, f"{path.name} belongs to another user of this computer", str(path))
    return os.open(path, flags, 0o600)
