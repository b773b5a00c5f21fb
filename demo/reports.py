"""How the demonstration's processes talk: one JSON object a line, orders in on stdin, reports out on stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any


def wall_us() -> int:
    """Return the wall clock, microseconds since the Unix epoch; one machine, so one clock for all processes."""
    return time.time_ns() // 1_000


def report(**fields: Any) -> None:
    """Write one report for the conductor."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def parse(line: str) -> dict[str, Any] | None:
    """Return the report or order in ``line``, or None if it is none."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


async def orders() -> AsyncIterator[Mapping[str, Any]]:
    """Yield the conductor's orders; ends when the conductor closes the pipe or is gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if (order := parse(line.decode())) is not None:
            yield order
