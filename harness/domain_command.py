"""Commands of an operator beside a server of a domain, which are refused while another server is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess
from wanderbus.testbed.launch import python

AGAIN_S: Final = 0.5


def domain_command(file: Path, data: Path, *arguments: str) -> list[str]:
    """Return the command line of ``wanderbus domain`` for the domain in ``file``, beside the server with this data."""
    return python("wanderbus", "domain", *arguments, "--event-domain", str(file), "--data-dir", str(data))


async def until_done(what: str, start: Callable[[], Awaitable[AsyncProcess]], seconds: float) -> None:
    """Run what ``start`` starts until it succeeds; :class:`CannotRunError` about ``what`` if that takes too long."""
    until = time.monotonic() + seconds
    while True:
        command = await start()
        try:
            status = await command.wait(until - time.monotonic())
        finally:
            command.kill_now()
        if status == 0:
            return
        if status is None or time.monotonic() > until:
            raise CannotRunError(f"{what}: {command.last_words()}")
        await asyncio.sleep(AGAIN_S)
