"""Processes of a run in real time: started, read line by line, and always ended."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from wanderbus.errors import WanderbusError

_GOODBYE_S: Final = 3.0
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class _Complaint(msgspec.Struct):
    message: str


class _Failed(msgspec.Struct):
    """An error as ``--json`` prints it."""

    error: _Complaint


class Child:
    """A running process; ``hear`` is called with each line that it prints."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.name = name
        self._process = process
        self._errors = errors

    def send(self, order: Any) -> None:
        """Write a JSON line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")

    async def line(self) -> bytes:
        """Return the next line; raise :class:`WanderbusError` with its last error output if it has ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise WanderbusError(f"{self.name} ended: {last_words(self._errors.read_text('utf-8', 'replace'))}")
        return line

    async def listen(self, hear: Callable[[bytes], None]) -> None:
        """Pass every line to ``hear``, until cancelled; raises like :meth:`line` if it ends."""
        while True:
            hear(await self.line())

    async def end(self) -> None:
        """Request its end, and kill it if that fails."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._process.wait()
                    return


def last_words(complaints: str) -> str:
    """Return the last line of a program's error output; for an error in JSON, its message."""
    lines = complaints.strip().splitlines()
    if not lines:
        return "no error output"
    try:
        return msgspec.json.decode(lines[-1], type=_Failed).error.message
    except msgspec.DecodeError:
        return lines[-1]


@contextlib.asynccontextmanager
async def child(name: str, argv: Sequence[str], directory: Path) -> AsyncIterator[Child]:
    """Run ``argv`` for the block, with its error output in ``directory``.

    It runs in a session of its own, so that Ctrl-C reaches only this process, and ends with this process in any case.
    """
    errors = directory / f"{name}.log"
    with errors.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_parent if _libc is not None else None,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    running = Child(name, process, errors)
    try:
        yield running
    finally:
        await running.end()


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
