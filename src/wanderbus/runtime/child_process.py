"""A program that this process starts, reads line by line, and does not leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final, Self

_PR_SET_PDEATHSIG: Final = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

_LINE_BYTES_MAX: Final = 1 << 20

_OUTPUT_S_MAX: Final = 2.0
"""Longest time for the rest of the output of a program that has ended: a child of it may hold the pipe open."""

OnLine = Callable[[str], None]


class ChildProcess:
    """A running program. It leads a session, so that Ctrl-C in the terminal does not reach it.

    On Linux the kernel kills it if this process ends for any reason.
    """

    def __init__(self, process: asyncio.subprocess.Process, on_output: OnLine, on_error: OnLine) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._reading = [
            asyncio.create_task(_read(stream, on_line), name=f"read process {process.pid}")
            for stream, on_line in ((process.stdout, on_output), (process.stderr, on_error))
        ]

    @classmethod
    async def start(cls, command: Sequence[str], on_output: OnLine, on_error: OnLine) -> Self:
        """Start ``command``; raise ``OSError`` if that fails.

        The two functions get the lines of its standard output and standard error, without their ends.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent,
            limit=_LINE_BYTES_MAX,
        )
        return cls(process, on_output, on_error)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    async def wait(self) -> int:
        """Return its exit status, or the negative number of a signal, once it has ended and its output is read."""
        status = await self._process.wait()
        await asyncio.wait(self._reading, timeout=_OUTPUT_S_MAX)
        for task in self._reading:
            task.cancel()
        return status

    def terminate(self) -> None:
        """Ask it to end; no effect if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """``kill -9`` it and the processes of its group; no effect if it has ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


async def _read(stream: asyncio.StreamReader, on_line: OnLine) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue  # a line above the limit, which is discarded
        if not line:
            return
        on_line(line.decode(errors="replace").rstrip("\n"))


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
