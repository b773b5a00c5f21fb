"""Processes that a blocking program starts: each is ready within a bound, and never outlives its ``with`` block."""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import end_of, environment, kill_group, last_line, preparation

READY_S_MAX: Final = 30.0
END_S_MAX: Final = 5.0
_POLL_S: Final = 0.02


class Process:
    """A program, started by the constructor; its errors are appended to ``log``, and its output too unless ``read``.

    :param read: :meth:`line` reads its standard output
    :param prepare: called in the new process before its program
    :param session: it leads a session of its own
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        read: bool = False,
        cwd: Path | None = None,
        more_environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
        session: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._unread = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if read else errors,
                stderr=errors,
                cwd=cwd,
                env=environment(more_environment),
                bufsize=0,
                process_group=None if session else 0,
                start_new_session=session,
                preexec_fn=preparation(prepare),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, the negative number of a signal, or None while it runs."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        """Return whether it has not ended yet."""
        return self.status is None

    def __str__(self) -> str:
        return end_of(self.name, self.status, self.log)

    def line(self, timeout_s: float = READY_S_MAX) -> str:
        """Return the next line of its output; :class:`CannotRunError` if there is none within ``timeout_s``."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left_s)[0]:
                raise CannotRunError(f"{self.name} was silent for {timeout_s:g} s: {last_line(self.log)}")
            read = self._process.stdout.read(65_536)
            if not read:
                self.wait(END_S_MAX)
                raise CannotRunError(str(self))
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float = READY_S_MAX) -> None:
        """Wait until ``is_ready``; :class:`CannotRunError` if it ends first, or is not ready within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.running:
                raise CannotRunError(str(self))
            if time.monotonic() > deadline:
                raise CannotRunError(f"{self.name} was not ready within {timeout_s:g} s: {last_line(self.log)}")
            time.sleep(_POLL_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; no harm if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return its exit status once it has ended, or None after ``timeout_s``."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """``kill -9`` it and its children, and wait until it is gone."""
        if self.running:
            kill_group(self.pid)
        self._process.wait()

    def end(self, timeout_s: float = END_S_MAX, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Send ``number``, wait ``timeout_s``, then kill it and its children; return its exit status."""
        try:
            self.send_signal(number)
            if self.wait(timeout_s) is None:
                self.kill()
        except BaseException:
            self.kill()  # an interrupted end must not leave it behind
            raise
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
        return self.status
