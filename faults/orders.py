"""Orders to a process: lines of its standard input, which its event loop reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_READ_BYTES_MAX = 4_096


def obey_lines(order: Callable[[str], None], end: Callable[[], None]) -> None:
    """Call ``order`` with each line of standard input from now on, and ``end`` once it has ended."""
    loop, buffer = asyncio.get_running_loop(), bytearray()

    def read() -> None:
        if not (data := os.read(0, _READ_BYTES_MAX)):
            loop.remove_reader(0)
            end()
            return
        buffer.extend(data)
        *lines, rest = bytes(buffer).split(b"\n")
        buffer[:] = rest
        for line in lines:
            order(line.decode())

    loop.add_reader(0, read)
