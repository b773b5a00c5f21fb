"""The processes of a run: started on their host, read, killed, and never left behind.

Every process is a session of its own, so that Ctrl-C in the terminal reaches the conductor alone, and requests from the
kernel to be killed when the conductor dies for any reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""Directory that holds the package ``demo``."""

_LINE_BYTES_MAX: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Child:
    """A running process; ``on_line`` gets each line of its standard output, its errors go to ``log``."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path, on_line: Callable[[str], None]):
        self.name = name
        self.log = log
        self._process = process
        self._listening = asyncio.create_task(self._listen(on_line), name=f"listen to {name}")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Return whether it has not ended yet."""
        return self._process.returncode is None

    def send(self, **order: Any) -> None:
        """Write one order to its standard input; discarded if it has ended."""
        if self._process.stdin is not None and self.running:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(json.dumps(order).encode() + b"\n")

    def interrupt(self, number: signal.Signals) -> None:
        """Send it a signal; no harm if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self, timeout_s: float | None = None) -> int | None:
        """Return its exit status once it has ended and its output is read, or None after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                status = await self._process.wait()
        except TimeoutError:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await asyncio.shield(self._listening)
        return status

    def kill_group(self) -> None:
        """``kill -9`` it and its children; it leads a group of its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        self.interrupt(signal.SIGKILL)
        await self.wait()

    async def end(self, timeout_s: float, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Terminate it, wait ``timeout_s``, then kill it; return its exit status, None if it had to be killed."""
        self.interrupt(number)
        status = await self.wait(timeout_s)
        if status is None:
            await self.kill()
        return status

    def last_words(self) -> str:
        """Return the last line of its log, or an empty text."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1] if lines else ""

    async def _listen(self, on_line: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            on_line(line.decode(errors="replace").rstrip("\n"))


class Crew:
    """All processes of a run. Leaving the context kills whatever is still running."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    async def __aenter__(self) -> Crew:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        for child in self._children:
            if child.running:
                child.kill_group()
        for child in self._children:
            await child.wait(5.0)

    async def start(self, name: str, argv: Sequence[str], on_line: Callable[[str], None]) -> Child:
        """Start ``argv``; its errors are appended to ``<name>.log``."""
        log = self._logs / f"{name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=_environment(),
                start_new_session=True,
                preexec_fn=_die_with_parent if _libc is not None else None,
                limit=_LINE_BYTES_MAX,
            )
        child = Child(name, process, log, on_line)
        self._children.append(child)
        return child


def python(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs ``module`` with this interpreter."""
    return [sys.executable, "-u", "-m", module, *arguments]


def _environment() -> dict[str, str]:
    """Return our environment, extended so that the process can import this package."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
