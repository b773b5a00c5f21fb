"""Protocol of the demonstration's processes: one JSON object a line, orders in on stdin, reports out on stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any


def wall_us() -> int:
    """Return the wall clock, microseconds since the Unix epoch; all processes share one machine, and so one clock."""
    return time.time_ns() // 1_000


def report(**fields: Any) -> None:
    """Write one report for the run."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def parse(line: str) -> dict[str, Any] | None:
    """Return the report or order in ``line``, or None if it is invalid."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


async def orders() -> AsyncIterator[Mapping[str, Any]]:
    """Yield the orders of the run; ends when the run closes the pipe or has ended."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if (order := parse(line.decode())) is not None:
            yield order
