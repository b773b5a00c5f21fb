"""Processes that an asynchronous program starts: heard line by line, given orders, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import end_of, environment, kill_group, last_line, preparation

_LINE_BYTES_MAX: Final = 1 << 20
_OUTPUT_S_MAX: Final = 2.0
"""Longest time for the rest of the output of a process that has ended: a child may hold the pipe open."""

_KILLED_S_MAX: Final = 5.0


class AsyncProcess:
    """A running program; its errors are appended to ``log``.

    ``on_line`` gets each line of its standard output; without it, :meth:`line` reads them.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path, on_line: Callable[[str], None] | None
    ) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._listening = on_line and asyncio.create_task(self._listen(on_line), name=f"listen to {name}")

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str],
        log: Path,
        on_line: Callable[[str], None] | None = None,
        *,
        read: bool = True,
        cwd: Path | None = None,
        more_environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Start ``argv``; its output goes to ``log`` too unless ``read``."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if read else errors,
                stderr=errors,
                cwd=cwd,
                env=environment(more_environment),
                process_group=0,
                preexec_fn=preparation(),
                limit=_LINE_BYTES_MAX,
            )
        return cls(name, process, log, on_line)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, the negative number of a signal, or None while it runs."""
        return self._process.returncode

    @property
    def running(self) -> bool:
        """Return whether it has not ended yet."""
        return self.status is None

    def __str__(self) -> str:
        return end_of(self.name, self.status, self.log)

    def last_words(self) -> str:
        """Return the last line of its log."""
        return last_line(self.log) or "no error output"

    def send(self, order: Any) -> None:
        """Write one order in JSON to its standard input; discarded if it has ended."""
        self.write(msgspec.json.encode(order) + b"\n")

    def write(self, data: bytes) -> None:
        """Write ``data`` to its standard input; discarded if it has ended."""
        if self._process.stdin is not None and self.running:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(data)

    def close_input(self) -> None:
        """End its standard input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def line(self) -> str:
        """Return the next line of its output; :class:`CannotRunError` with its last error output if it has ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            await self.wait(_OUTPUT_S_MAX)
            raise CannotRunError(str(self))
        return line.decode(errors="replace").rstrip("\n")

    async def listen(self, on_line: Callable[[str], None]) -> None:
        """Pass every line to ``on_line``, until cancelled; raises like :meth:`line` if it ends."""
        while True:
            on_line(await self.line())

    async def until(self, ready: asyncio.Event, timeout_s: float) -> None:
        """Wait for ``ready``; :class:`CannotRunError` if it ends first or ``timeout_s`` pass."""
        waits = [asyncio.create_task(ready.wait()), asyncio.create_task(self.wait())]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not ready.is_set():
            fate = f"was not ready within {timeout_s:.0f} s" if self.running else "ended before it was ready"
            raise CannotRunError(f"{self.name} {fate}: {self.last_words()}")

    async def wait(self, timeout_s: float | None = None) -> int | None:
        """Return its exit status once it has ended and its output is read, or None after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                status = await self._process.wait()
        except TimeoutError:
            return None
        if self._listening:
            for task in (await asyncio.wait([self._listening], timeout=_OUTPUT_S_MAX))[0]:
                task.result()
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; no harm if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill_now(self) -> None:
        """``kill -9`` it and its children, without waiting."""
        if self.running:
            kill_group(self.pid)

    async def kill(self) -> None:
        """``kill -9`` it and its children, and wait until it is gone."""
        self.kill_now()
        await self.wait()

    async def end(self, timeout_s: float, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Send ``number``, wait ``timeout_s``, then kill it; return its exit status."""
        self.send_signal(number)
        if await self.wait(timeout_s) is None:
            await self.kill()
        return self.status

    async def _listen(self, on_line: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            on_line(line.decode(errors="replace").rstrip("\n"))


class Crew:
    """All processes of a run, with their logs in one directory. Leaving the context kills those that still run."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._processes: list[AsyncProcess] = []

    async def __aenter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill_now()
        for process in self._processes:
            await process.wait(_KILLED_S_MAX)

    async def start(
        self, name: str, argv: Sequence[str], on_line: Callable[[str], None] | None = None, **options: Any
    ) -> AsyncProcess:
        """Start ``argv``, as :meth:`AsyncProcess.start` does; its errors are appended to ``<name>.log``."""
        process = await AsyncProcess.start(name, argv, self._logs / f"{name}.log", on_line, **options)
        self._processes.append(process)
        return process
