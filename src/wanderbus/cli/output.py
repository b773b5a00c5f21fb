"""How commands speak: results on standard output, complaints on standard error, JSON where asked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from wanderbus.errors import ConfigurationError

Returned = TypeVar("Returned")


def say(line: str) -> None:
    """Print one line of results, at once even into a pipe."""
    print(line, flush=True)


def say_json(value: object) -> None:
    """Print one line of JSON."""
    say(msgspec.json.encode(value).decode())


def complain(line: str) -> None:
    """Print a complaint on standard error."""
    print(f"wanderbus: {line}", file=sys.stderr, flush=True)


def check_writable(path: Path) -> None:
    """Raise :class:`ConfigurationError` if ``path`` cannot be written: better before the work than after it."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def write_json(path: Path, value: object) -> None:
    """Write a JSON file for people and programs; :class:`ConfigurationError` if it cannot be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def log_to_stderr(*, verbose: bool) -> None:
    """Let the logs go to standard error: warnings, or everything of interest."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def run_async(main: Coroutine[Any, Any, Returned]) -> Returned:
    """Run ``main`` on the fastest event loop there is; SIGTERM is an interruption as SIGINT is, ending it in order."""
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ModuleNotFoundError):
        from uvloop import new_event_loop
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_until_terminated(main))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _until_terminated(main: Coroutine[Any, Any, Returned]) -> Returned:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await main


def ended_by_signal() -> asyncio.Event:
    """Return an event of the running loop that SIGINT and SIGTERM set, the ordinary end of what serves."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


def machine() -> dict[str, object]:
    """Return what a figure was measured on."""
    return {"python": platform.python_version(), "system": platform.system(), "processors": os.cpu_count()}
