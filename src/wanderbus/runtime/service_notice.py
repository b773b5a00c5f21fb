"""Notices to the service manager that started this process: it is ready, alive, or about to end (sd_notify(3))."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator


def notify(state: str) -> None:
    """Send ``state``, such as ``READY=1``; does nothing without a service manager that wants to know."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    # A service manager that cannot be reached has other ways to see this process.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.setblocking(False)
        notices.sendto(state.encode(), address)


@contextlib.asynccontextmanager
async def announced() -> AsyncIterator[None]:
    """Announce that the process is ready, that it is alive as often as is wanted, and at the end that it stops."""
    notify("READY=1")
    beating = asyncio.create_task(_beat(pause_s)) if (pause_s := _watchdog_pause_s()) is not None else None
    try:
        yield
    finally:
        notify("STOPPING=1")
        if beating is not None:
            beating.cancel()


async def _beat(pause_s: float) -> None:
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(pause_s)


def _watchdog_pause_s() -> float | None:
    """Return half the time after which a silent process is restarted; None if nobody watches it."""
    wanted, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not (wanted.isascii() and wanted.isdecimal() and int(wanted)) or pid not in ("", str(os.getpid())):
        return None
    return int(wanted) / 2e6
