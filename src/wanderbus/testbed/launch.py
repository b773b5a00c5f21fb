"""Start and end of a program, as blocking and asynchronous processes share them.

Every program leads a process group of its own, so that Ctrl-C in the terminal reaches only the process that started
it, and the kernel kills it when the thread that started it ends, for any reason. It has no session of its own unless it
asks for one: Linux may give every session an equal share of the processors (sched(7), autogroup), which changes
measurements.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class _Message(msgspec.Struct):
    message: str


class _Failed(msgspec.Struct):
    """An error as the commands print it with ``--json``."""

    error: _Message


def python(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs ``module`` with this interpreter."""
    return [sys.executable, "-u", "-m", module, *arguments]


def pinned(argv: Sequence[str], processor: int | None) -> list[str]:
    """Return the command line that runs ``argv`` and its children on one processor, or on any if it is None."""
    return [*([] if processor is None else ["taskset", "--cpu-list", str(processor)]), *argv]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our environment and ``more``; a Python program that gets it can import whatever this process can."""
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    own = [os.path.abspath(path) for path in sys.path if not path.startswith(installed) and not path.endswith(".zip")]
    paths = dict.fromkeys([*own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **(more or {})}


def preparation(more: Callable[[], None] | None = None) -> Callable[[], None]:
    """Return the function that a new process calls first: it binds the process to our life, then calls ``more``."""

    def prepare() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if more is not None:
            more()

    return prepare


def kill_group(leader: int) -> None:
    """``kill -9`` a process that leads its group and is not yet waited for, and its children."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def last_line(log: Path) -> str:
    """Return the last line of a program's error output; for an error in JSON its message; empty if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    if not lines:
        return ""
    try:
        return msgspec.json.decode(lines[-1], type=_Failed).error.message
    except msgspec.DecodeError:
        return lines[-1]


def end_of(name: str, status: int | None, log: Path) -> str:
    """Return in one line how a program has ended, with its last error output; ``status`` None means it still runs."""
    if status is None:
        way = "runs"
    elif status < 0:
        way = f"was killed by {signal.Signals(-status).name}"
    else:
        way = f"ended with exit status {status}"
    return f"{name} {way}: {last_line(log) or 'no error output'}"
