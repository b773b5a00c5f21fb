"""Standard input, a line at a time, without keeping the command from ending while it waits for one."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

LINES_AHEAD_MAX: Final = 1_024
"""Lines that are read before somebody asks for them."""

_CHUNK_BYTES: Final = 65_536


async def numbered_lines() -> AsyncIterator[tuple[int, bytes]]:
    """Yield each line that is not blank, with its number from 1."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(LINES_AHEAD_MAX)
    # A thread of the loop's own pool would be waited for at the end, and a terminal may never send another line.
    reader = threading.Thread(target=_read, args=(asyncio.get_running_loop(), lines, room), daemon=True)
    reader.start()
    number = 0
    while line := await lines.get():
        number += 1
        room.release()
        if line.strip():
            yield number, line


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes], room: threading.Semaphore) -> None:
    """Put every line, and an empty one at the end; ends in silence when the loop is gone.

    Reads below the buffer of ``sys.stdin``, whose lock must be free when the interpreter ends.
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
