"""Output of commands: results on standard output, errors on standard error, as text or JSON; and end by a signal.

Output may contain events and names that users chose. Characters that could control a terminal or forge a line are
escaped here, in text and in JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import select
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import msgspec

from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.event_text import escaped

Returned = TypeVar("Returned")

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command cleanly, with exit status 128 plus their number."""

_LOOK_S: Final = 0.5
"""Pause between two checks that the output pipe still has a reader."""


class EndedBySignal(BaseException):
    """A signal ended the command, after its clean-up."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number
        """Exit status, as a shell would report it."""


class OutputClosed(BaseException):
    """Standard output is a pipe that has lost its reader, for example ``head``: an ordinary end."""


class OutputFailed(WanderbusError):
    """Standard output takes nothing more, for example on a full disk."""


def print_line(line: str) -> None:
    """Print one line of results and flush it.

    :raises OutputClosed: the pipe has no reader
    :raises OutputFailed: the disk is full, for example
    """
    try:
        print(escaped(line), flush=True)
    except OSError as error:
        raise output_ended(error) from None


def output_ended(error: OSError) -> OutputClosed | OutputFailed:
    """Discard what standard output did not take, and return the exception that ends the command."""
    discard_output()
    if isinstance(error, BrokenPipeError):
        return OutputClosed()
    return OutputFailed(f"standard output cannot be written: {error.strerror or error}")


def print_lines(text: str) -> None:
    """Print lines of results."""
    for line in text.rstrip("\n").split("\n"):
        print_line(line)


def print_json(value: object) -> None:
    """Print one line of JSON."""
    print_line(msgspec.json.encode(value).decode())


def print_progress(line: str) -> None:
    """Print progress of the command on standard error; a missing reader is no error."""
    print_error(line)


def print_progress_json(word: str, line: str) -> None:
    """Print progress as JSON on standard error: ``word`` is for programs, ``line`` for people."""
    with contextlib.suppress(OSError):
        print(msgspec.json.encode({"status": word, "message": escaped(line)}).decode(), file=sys.stderr, flush=True)


def print_unchanged(line: str) -> None:
    """Print a line of another program on standard error, escaped; a missing reader is no error."""
    with contextlib.suppress(OSError):
        print(escaped(line), file=sys.stderr, flush=True)


def print_error(*lines: str) -> None:
    """Print an error on standard error; it has more than one line only to point at a place in the input."""
    with contextlib.suppress(OSError):
        first, *more = map(escaped, lines)
        print("\n".join((f"wanderbus: {first}", *more)), file=sys.stderr, flush=True)


def print_error_json(kind: str, message: str, **more: object) -> None:
    """Print an error on standard error as one line of JSON."""
    with contextlib.suppress(OSError):
        line = msgspec.json.encode({"error": {"type": kind, "message": escaped(message), **more}}).decode()
        print(escaped(line), file=sys.stderr, flush=True)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def discard_output() -> None:
    """Redirect standard output to the null device, so that the last flush at interpreter exit does not fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def check_writable(path: Path) -> None:
    """Raise :class:`ConfigurationError` if ``path`` cannot be written: before the work, so that none is lost."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def write_json(path: Path, value: object) -> None:
    """Write an indented JSON file; :class:`ConfigurationError` if it cannot be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


class _EscapingFormatter(logging.Formatter):
    """Formats the message of a record as one escaped line; a traceback below it is unchanged."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return escaped(super().formatMessage(record))


class _JSONFormatter(logging.Formatter):
    """Makes one JSON object of each message, in one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def log_to_stderr(*, verbose: bool, as_json: bool = False) -> None:
    """Send log messages to standard error: from level WARNING, or from INFO if ``verbose``; ``as_json`` one a line."""
    handler: logging.StreamHandler[TextIO] = logging.StreamHandler(sys.stderr)
    lines = _EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JSONFormatter() if as_json else lines)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


def run_async(main: Coroutine[Any, Any, Returned]) -> Returned:
    """Run ``main`` on uvloop if it is installed, else on asyncio; SIGINT, SIGTERM and SIGHUP cancel it.

    :raises EndedBySignal: one of these signals arrived
    """
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ModuleNotFoundError):
        from uvloop import new_event_loop
    received: list[int] = []
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_until_signal(main, received))
    except asyncio.CancelledError:
        raise EndedBySignal(received[0] if received else signal.SIGINT) from None


async def _until_signal(main: Coroutine[Any, Any, Returned], received: list[int]) -> Returned:
    task = asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in _ENDING:
        # A signal that the shell ignores (nohup, background job) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    return await main


async def output_closed() -> None:
    """Wait until standard output is a pipe without a reader; for any other output, wait for ever."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        await asyncio.Event().wait()
    while not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        await asyncio.sleep(_LOOK_S)
    discard_output()


def machine() -> dict[str, object]:
    """Return a description of this machine, to go with measured figures."""
    return {"python": platform.python_version(), "system": platform.system(), "processors": os.cpu_count()}
