"""Asynchronous reader of standard input, line by line; a pending read does not stop the command from ending."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

LINES_AHEAD_MAX: Final = 1_024
"""Most lines that are read ahead."""

_CHUNK_BYTES: Final = 65_536


async def numbered_lines() -> AsyncIterator[tuple[int, bytes]]:
    """Yield each line that is not blank with its number; numbers begin at 1 and count blank lines too."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(LINES_AHEAD_MAX)
    # The interpreter would wait at exit for a thread of the loop's pool, and a terminal may never send another line.
    reader = threading.Thread(target=_read, args=(asyncio.get_running_loop(), lines, room), daemon=True)
    reader.start()
    number = 0
    while line := await lines.get():
        number += 1
        room.release()
        if line.strip():
            yield number, line


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes], room: threading.Semaphore) -> None:
    """Enqueue every line, and an empty one at the end of input; stop silently when the loop is closed.

    Read from the file descriptor, not through ``sys.stdin``: the lock of its buffer must be free at interpreter exit.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            room.acquire()
            if not _put(loop, lines, line + b"\n"):
                return
    if not rest or _put(loop, lines, rest):
        _put(loop, lines, b"")


def _put(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes], line: bytes) -> bool:
    try:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    except RuntimeError:
        return False
    return True
