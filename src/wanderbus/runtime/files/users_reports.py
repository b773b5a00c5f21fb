"""Reports of servers about a users file, in files beside it, for whoever changes the file.

A server that follows the file writes the version that it has read, and the error for which it does not use it. It holds
a lock on its report as long as it runs, so a report without a lock belongs to a server that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import glob
import logging
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from wanderbus.runtime.files.file_modes import lock_file

_log = logging.getLogger("wanderbus.users")

ANSWER_S_MAX: Final = 3.0
"""Time in which a running server has looked at the file again."""

_PAUSE_S: Final = 0.05

Version = tuple[int, int, int]
"""Time of the last change, size and inode of a file."""


class ServerReport(msgspec.Struct, frozen=True):
    """Report of one server."""

    process: int
    domain: str
    version: Version | None = None
    """Version of the file that the server has read last."""
    refused: str | None = None
    """Error for which it does not use that version."""

    def __str__(self) -> str:
        return f"the server of {self.domain} (process {self.process})"


class UsersReport:
    """Report of this process about the users file at ``path``, removed at the end of the ``with`` block.

    A server may have no right to write there: then it says in its log that nobody can ask it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path = path.resolve()
        self._file = path.with_name(f".{path.name}.{secrets.token_hex(4)}.report")
        self._descriptor: int | None = None
        self._written = b""

    def __enter__(self) -> Self:
        list(_reports(self._path))  # removes those of servers that were killed
        hidden = self._file.with_suffix(".new")
        try:
            self._descriptor = lock_file(hidden)
            hidden.rename(self._file)
        except OSError as error:
            self._close()
            _log.warning(
                "cannot write %s: %s; 'wanderbus users' does not learn whether this server uses a changed file",
                self._file,
                error.strerror,
            )
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink()
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def write(self, domain: str, version: Version | None, refused: str | None) -> None:
        """Write what the server has read; the same again is not written."""
        text = msgspec.json.encode(ServerReport(os.getpid(), domain, version, refused))
        if self._descriptor is None or text == self._written:
            return
        with contextlib.suppress(OSError):  # a full disk: the reader waits, and says that the server does not answer
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)
            self._written = text


def version_of(path: Path) -> Version | None:
    """Return the version of a file, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def server_reports(path: Path) -> Sequence[ServerReport]:
    """Return the reports of all running servers, each about the present file if it answers in time."""
    deadline = time.monotonic() + ANSWER_S_MAX
    while True:
        found, version = list(_reports(path)), version_of(path)
        if all(each.version == version for each in found) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(_PAUSE_S)


def _reports(path: Path) -> Iterator[ServerReport]:
    path = path.resolve()
    for file in sorted(path.parent.glob(f".{glob.escape(path.name)}.*.report")):
        with contextlib.suppress(OSError), file.open("rb") as opened:
            if _is_locked(opened.fileno()):
                with contextlib.suppress(msgspec.DecodeError):
                    yield msgspec.json.decode(opened.read(), type=ServerReport)
            else:
                file.unlink()


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
