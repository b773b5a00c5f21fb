"""Devices that are restored from copies beside a server that is not: frame of the worlds of outboxes and agents."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from faults.agents import PASSWORD
from faults.restoring.kind import Tried
from faults.restoring.servers import InProcess
from wanderbus.errors import WanderbusError

SETTLE_S_MAX: Final = 60.0
"""Time after which an event that did not arrive is lost; an outbox pauses before it publishes in another epoch."""

LOOK_S: Final = 0.01


class Warnings(logging.Handler):
    """Warnings of the agents of this process, in order."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("wanderbus.agent").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())

    def end(self) -> None:
        """Keep no more lines."""
        logging.getLogger("wanderbus.agent").removeHandler(self)


class DeviceWorld:
    """A server, and devices that a subclass restores in :meth:`try_point`."""

    users: tuple[str, ...] = ()

    def __init__(self, directory: Path, random: Random) -> None:
        self.tried = Tried()
        self.random = random
        self.directory = directory
        self.warnings = Warnings()
        self.server = InProcess(directory / "data", users=dict.fromkeys(self.users, PASSWORD))

    async def run(self, points: int) -> Tried:
        """Try ``points`` points; return what was found."""
        await self.server.start()
        try:
            await self.begin()
            for _ in range(points):
                await self.try_point()
                self.tried.points += 1
        except (TimeoutError, WanderbusError) as error:
            self.tried.broken(f"point {self.tried.points}: {type(error).__name__}: {error}")
        finally:
            await self.end()
            await self.server.stop()
            self.warnings.end()
        return self.tried

    async def begin(self) -> None:
        """Start the devices."""

    async def try_point(self) -> None:
        """Copy a device, go on, restore it, and judge."""
        raise NotImplementedError

    async def end(self) -> None:
        """End the devices."""


async def settled(condition: Callable[[], bool], within_s: float = SETTLE_S_MAX) -> bool:
    """Wait until ``condition`` holds; return whether it does in time."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(LOOK_S)
    return True
