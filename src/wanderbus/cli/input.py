"""Asynchronous reader of standard input, line by line; a pending read does not stop the command from ending."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

from wanderbus.errors import ConfigurationError

LINES_AHEAD_MAX: Final = 1_024
"""Most lines that are read ahead."""

_CHUNK_BYTES: Final = 65_536

_Lines: TypeAlias = "asyncio.Queue[bytes | OSError]"


async def numbered_lines() -> AsyncIterator[tuple[int, bytes]]:
    """Yield each line that is not blank with its number; numbers begin at 1 and count blank lines too.

    :raises ConfigurationError: standard input cannot be read; it is a directory, for example
    """
    lines: _Lines = asyncio.Queue()
    room = threading.Semaphore(LINES_AHEAD_MAX)
    # The interpreter would wait at exit for a thread of the loop's pool, and a terminal may never send another line.
    reader = threading.Thread(target=_read, args=(asyncio.get_running_loop(), lines, room), daemon=True)
    reader.start()
    number = 0
    while line := await lines.get():
        if isinstance(line, OSError):
            raise ConfigurationError(f"standard input cannot be read: {line.strerror}")
        number += 1
        room.release()
        if line.strip():
            yield number, line


def _read(loop: asyncio.AbstractEventLoop, lines: _Lines, room: threading.Semaphore) -> None:
    """Enqueue every line, and an empty one at the end of input; stop silently when the loop is closed.

    Read from the file descriptor, not through ``sys.stdin``: the lock of its buffer must be free at interpreter exit.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while chunk := _chunk(descriptor):
        if isinstance(chunk, OSError):
            _put(loop, lines, chunk)
            return
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            room.acquire()
            if not _put(loop, lines, line + b"\n"):
                return
    if not rest or _put(loop, lines, rest):
        _put(loop, lines, b"")


def _chunk(descriptor: int) -> bytes | OSError:
    """Return what can be read, empty at the end of input, or the error."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except OSError as error:
        return error


def _put(loop: asyncio.AbstractEventLoop, lines: _Lines, line: bytes | OSError) -> bool:
    try:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    except RuntimeError:
        return False
    return True
