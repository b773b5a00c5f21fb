"""Strangers at the pages of ``http``: slow requests, and scrapes without a pause."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time

from hostile.attack import PAGES_PORT, Attack, Report, Target
from hostile.network import SOURCES

SLOW_EACH = 32
"""Connections of each source that send a request a byte a second."""

SLOW_SOURCES = 4
SCRAPE_S = 0.01

_HEAD = b"GET /healthz HTTP/1.1\r\nHost: server\r\nX-Slow: "


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _slow(target: Target) -> Report:
    """Hold requests that never end, and begin new ones in place of those that were closed."""
    until, begun = time.monotonic() + target.seconds, 0

    async def one(source: str) -> None:
        nonlocal begun
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ssl.SSLError):
                _, writer = await asyncio.open_connection(
                    target.server, PAGES_PORT, ssl=_context(), local_addr=(source, 0)
                )
                begun += 1
                writer.write(_HEAD)
                while time.monotonic() < until and not writer.is_closing():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(1.0)
            await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as tasks:
        for source in SOURCES[:SLOW_SOURCES]:
            for _ in range(SLOW_EACH):
                tasks.create_task(asyncio.wait_for(one(source), target.seconds + 5.0))
    return {"requests_begun": begun}


async def _scrapes(target: Target) -> Report:
    """Ask for the metrics a hundred times a second without a password, and for the state of the server."""
    until, sent, answered = time.monotonic() + target.seconds, 0, 0
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(target.server, PAGES_PORT, ssl=_context())
            while time.monotonic() < until:
                path = b"/metrics" if sent % 2 else b"/readyz"
                writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: server\r\n\r\n")
                sent += 1
                head = await reader.readuntil(b"\r\n\r\n")
                answered += 1
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                await asyncio.sleep(SCRAPE_S)
        await asyncio.sleep(SCRAPE_S)
    return {"sent": sent, "answered": answered}


ATTACKS = (
    Attack(
        "slow_requests",
        "own",
        "4 sources x 32 requests for a page, over TLS, that come a byte a second",
        _slow,
        pages=True,
        quick=True,
    ),
    Attack("scrapes", "own", "100 requests/s for metrics, without a password, and for readiness", _scrapes, pages=True),
)
