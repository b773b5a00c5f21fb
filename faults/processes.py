"""Processes of a crash run: started, monitored, killed without notice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Final

READY_S_MAX: Final = 60.0
"""Longest time until a process is ready; only a failure takes so long."""


class Died(Exception):
    """A process ended unexpectedly, or was not ready in time."""


class Victim:
    """A program that is killed and started again, always with the same arguments."""

    def __init__(self, name: str, module: str, *arguments: str, errors: Path) -> None:
        self.name = name
        self.starts = 0
        self.ready_s = 0.0
        """Duration of the last start that was waited for."""
        self._line = [sys.executable, "-m", module, *arguments]
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None
        self._started = 0.0

    async def start(self) -> None:
        """Start it without waiting."""
        assert self._process is None, self.name
        self.starts += 1
        self._started = time.monotonic()
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._line, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors
            )

    async def ready(self) -> None:
        """Wait until it reports that it is ready; raise :class:`Died` if it does not."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_S_MAX):
                said = await self._process.stdout.readline()
        except TimeoutError:
            raise Died(f"{self.name} was not ready in {READY_S_MAX:g} s") from None
        if not said:
            raise Died(f"{self.name} ended with status {await self._process.wait()}; see {self._errors}")
        self.ready_s = time.monotonic() - self._started

    def tell(self, word: str) -> None:
        """Write a line to its standard input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{word}\n".encode())

    async def kill(self) -> None:
        """Kill it by ``kill -9``; raise :class:`Died` if it had ended before."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if (status := await process.wait()) != -signal.SIGKILL:
            raise Died(f"{self.name} ended with status {status} on its own; see {self._errors}")

    async def end(self, within_s: float) -> None:
        """End it in order, with status 0, by the end of its standard input; raise :class:`Died` if that fails."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(within_s):
                status = await process.wait()
        except TimeoutError:
            raise Died(f"{self.name} did not end in {within_s:g} s") from None
        self._process = None
        if status != 0:
            raise Died(f"{self.name} ended with status {status}; see {self._errors}")
