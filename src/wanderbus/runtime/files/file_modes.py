"""Access rights of files and directories with secrets: for their owner only, with a warning if others have access."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

_log = logging.getLogger("wanderbus.config")

_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
_ROOT = 0
_reported: set[Path] = set()
"""Paths that others can read, each of which is reported once."""


def warn_if_open(path: Path, holds: str) -> None:
    """Log one line, with the command that corrects it, if others can read ``path``, which ``holds`` a secret.

    A process reports a path once: some commands read their settings for each part that needs them.
    """
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if mode & _READ_BY_OTHERS and path not in _reported:
            _reported.add(path)
            closed = "700" if stat.S_ISDIR(mode) else "600"
            _log.warning(
                "%s holds %s and can be read by others: chmod %s %s", path, holds, closed, shlex.quote(str(path))
            )


def make_private_directory(directory: Path) -> None:
    """Create ``directory`` and its parents, each for its owner only (XDG Base Directory); ``OSError`` if that fails.

    Existing directories are not changed.
    """
    if not directory.is_dir():
        make_private_directory(directory.parent)
        directory.mkdir(0o700, exist_ok=True)


def make_own_directory(directory: Path) -> None:
    """Create ``directory`` as :func:`make_private_directory` does, and check it as :func:`check_own_directory` does."""
    make_private_directory(directory)
    check_own_directory(directory)


def check_own_directory(directory: Path) -> None:
    """Raise ``PermissionError`` if another user owns ``directory``, or the link to it, and could replace every file.

    Root may use everybody's directories, but no link that leads to another user's.
    """
    me, owner = os.geteuid(), directory.stat().st_uid
    trusted = {me, _ROOT, owner} if me == _ROOT else {me, _ROOT}
    if owner not in trusted or directory.lstat().st_uid not in trusted:
        raise PermissionError(errno.EPERM, "it belongs to another user of this computer", str(directory))


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """Make files of this process, and of those that it starts, readable by their owner only within the block."""
    before = os.umask(0o077)
    os.umask(before | 0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private(path: Path) -> None:
    """Create a file that another library will fill, readable by its owner only; an existing one is not changed."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def warn_if_others_write(directory: Path, holds: str) -> None:
    """Log one line if everybody can replace the files in ``directory``, which ``holds`` a secret."""
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
    """Open the file at ``path``; create it, readable by its owner only, if it does not exist.

    Where others can write, one of them may have put a file there first, or a link to another file of ours. Raises
    ``PermissionError`` if the file, or the link, belongs to another user, and ``OSError`` if it cannot be opened. Root
    may use files of the owner of the directory.
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
