"""Program that is killed without notice and started again, with the same arguments."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess
from wanderbus.testbed.launch import python

READY_S_MAX: Final = 60.0
"""Longest time until a process is ready, unless it has its own; only a failure takes so long."""


class Died(Exception):
    """A process ended unexpectedly, or was not ready in time."""


class Victim:
    """A program of ours; ``starts`` counts its processes, ``ready_s`` is the duration of the last awaited start.

    ``on_host`` returns the command line that runs another one on its host, under the same process id.
    """

    def __init__(
        self,
        name: str,
        module: str,
        *arguments: str,
        errors: Path,
        ready_s_max: float = READY_S_MAX,
        on_host: Callable[[Sequence[str]], list[str]] = list,
    ) -> None:
        self.name = name
        self.starts = 0
        self.ready_s = 0.0
        self._argv = on_host(python(module, *arguments))
        self._errors = errors
        self._ready_s_max = ready_s_max
        self._process: AsyncProcess | None = None
        self._started = 0.0

    async def start(self) -> None:
        """Start it without waiting."""
        assert self._process is None, self.name
        self.starts += 1
        self._started = time.monotonic()
        self._process = await AsyncProcess.start(self.name, self._argv, self._errors)

    async def ready(self) -> None:
        """Wait until it reports that it is ready; raise :class:`Died` if it does not."""
        try:
            await self.line(self._ready_s_max)
        except TimeoutError:
            raise Died(f"{self.name} was not ready in {self._ready_s_max:g} s") from None
        self.ready_s = time.monotonic() - self._started

    @property
    def pid(self) -> int:
        """Process id of the running process."""
        assert self._process is not None
        return self._process.pid

    async def line(self, within_s: float) -> str:
        """Return the next line of its output; ``TimeoutError`` if there is none in time, :class:`Died` if it ends."""
        assert self._process is not None
        try:
            async with asyncio.timeout(within_s):
                return await self._process.line()
        except CannotRunError as error:
            raise Died(f"{error}; see {self._errors}") from None

    def tell(self, word: str) -> None:
        """Write a line to its standard input."""
        if self._process is not None:
            self._process.write(f"{word}\n".encode())

    async def kill(self, *, alone: bool = False) -> None:
        """Kill it by ``kill -9``, and its children unless ``alone``; raise :class:`Died` if it had ended before."""
        process, self._process = self._process, None
        if process is None:
            return
        if alone:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        else:
            await process.kill()
        if process.status != -signal.SIGKILL:
            raise Died(f"{process}; nobody had ended it; see {self._errors}")

    async def fall(self, within_s: float) -> None:
        """Wait until it ends with an error, as it does without a process that it needs; raise :class:`Died` if not."""
        process, self._process = self._process, None
        assert process is not None, self.name
        if not await process.wait(within_s):
            self._process = process
            raise Died(f"{self.name} did not end with an error in {within_s:g} s; see {self._errors}")

    async def end(self, within_s: float) -> None:
        """End it in order, with status 0, by the end of its standard input; raise :class:`Died` if that fails."""
        process = self._process
        if process is None:
            return
        process.close_input()
        if await process.wait(within_s) is None:
            raise Died(f"{self.name} did not end in {within_s:g} s")
        self._process = None
        if process.status != 0:
            raise Died(f"{process}; see {self._errors}")
