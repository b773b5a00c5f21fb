"""A service that its server starts, starts again after it has ended, and ends with itself.

The service has a pipe as its standard input, and ends when the pipe ends: that is so also when its server is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

_log = logging.getLogger("wanderbus.server")

PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 60.0
"""Pauses before it is started again: each is twice the one before, until it has run for the longest pause."""

END_S_MAX: Final = 15.0
"""Time that it has to end by itself; then it is killed with all its processes."""

POLL_S: Final = 0.1
"""Pause between two looks at its process."""

_STANDARD_ERROR: Final = 2


class SupervisedService:
    """The service ``name``, which ``command`` runs, between :meth:`start` and :meth:`close`."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name = name
        self._command = list(command)
        self._closed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        # It may end after the server, which waits for it when the interpreter ends.
        self._thread = threading.Thread(target=self._run, name=f"wanderbus-{name}")

    @property
    def pid(self) -> int | None:
        """Return the id of its process, None while there is none."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def start(self) -> None:
        """Start it; what it prints goes to the standard error of this process."""
        self._thread.start()

    def close(self) -> None:
        """End it; returns before it has ended."""
        self._closed.set()
        with self._lock:
            if self._process is not None:
                _end(self._process)

    def join(self) -> None:
        """Return when it has ended."""
        self._thread.join()

    def _run(self) -> None:
        pause_s = PAUSE_S_MIN
        while not self._closed.is_set():
            began = time.monotonic()
            reason = self._run_once()
            if self._closed.is_set():
                return
            ran_s = time.monotonic() - began
            pause_s = PAUSE_S_MIN if ran_s >= PAUSE_S_MAX else pause_s
            _log.warning("the service %s %s; it is started again in %g s", self._name, reason, pause_s)
            self._closed.wait(pause_s)
            pause_s = min(PAUSE_S_MAX, 2 * pause_s)

    def _run_once(self) -> str:
        """Run it until it ends; return how it ended."""
        with self._lock:
            if self._closed.is_set():
                return "was not started"
            try:
                process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=_STANDARD_ERROR, start_new_session=True
                )
            except OSError as error:
                return f"cannot be started: {error.strerror}"
            self._process = process
        killed_at: float | None = None
        while not _has_ended(process):
            if self._closed.is_set():
                killed_at = killed_at or time.monotonic() + END_S_MAX
                if time.monotonic() >= killed_at:
                    break
                time.sleep(POLL_S)
            else:
                self._closed.wait(POLL_S)
        # What it has started may be left: the processes of Spark, if it was killed. Its id is not given to others yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        _close(process)
        return f"has ended with status {status}"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether it has ended; its id stays its own."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    _close(process)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
