"""Results on standard output, errors on standard error, JSON where asked, and the end of a command by a signal.

What is printed may hold what users publish and how they name things: whatever could steer a terminal or forge a line is
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
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.event_text import escaped

Returned = TypeVar("Returned")

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command in order, with exit status 128 and their number."""

_LOOK_S: Final = 0.5
"""Pause between two looks at whether anybody reads the output."""


class EndedBySignal(BaseException):
    """A signal ended the command, which has left in order."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number
        """The exit status that a shell would give."""


class OutputClosed(BaseException):
    """Nobody reads standard output any more, as behind ``head``: the ordinary end of whoever writes it."""


def say(line: str) -> None:
    """Print one line of results, at once even into a pipe; :class:`OutputClosed` if nobody reads it."""
    try:
        print(escaped(line), flush=True)
    except BrokenPipeError:
        give_up_output()
        raise OutputClosed from None


def say_lines(text: str) -> None:
    """Print lines of results."""
    for line in text.rstrip("\n").split("\n"):
        say(line)


def say_json(value: object) -> None:
    """Print one line of JSON."""
    say(msgspec.json.encode(value).decode())


def note(line: str) -> None:
    """Print on standard error how the command gets on; nobody may be there to read it."""
    complain(line)


def note_in_json(word: str, line: str) -> None:
    """Print the same as JSON: a word for programs, a line for people."""
    with contextlib.suppress(OSError):
        print(msgspec.json.encode({"status": word, "message": escaped(line)}).decode(), file=sys.stderr, flush=True)


def complain(*lines: str) -> None:
    """Print a complaint on standard error, one line unless it points at something."""
    with contextlib.suppress(OSError):
        first, *more = map(escaped, lines)
        print("\n".join((f"wanderbus: {first}", *more)), file=sys.stderr, flush=True)


def complain_in_json(kind: str, message: str, **more: object) -> None:
    """Print an error on standard error as one line of JSON."""
    with contextlib.suppress(OSError):
        line = msgspec.json.encode({"error": {"type": kind, "message": escaped(message), **more}}).decode()
        print(escaped(line), file=sys.stderr, flush=True)


def give_up_output() -> None:
    """Let nothing be written to a pipe without a reader when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


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


class _EscapingFormatter(logging.Formatter):
    """Formats a record as one line, and its traceback below it as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return escaped(super().formatMessage(record))


def log_to_stderr(*, verbose: bool) -> None:
    """Let the logs go to standard error: warnings, or everything of interest."""
    handler: logging.StreamHandler[TextIO] = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


def run_async(main: Coroutine[Any, Any, Returned]) -> Returned:
    """Run ``main`` on the fastest event loop there is; SIGINT, SIGTERM and SIGHUP end it in order.

    :raises EndedBySignal: one of them did
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
        # What the shell had ignored (nohup, or behind &) stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    return await main


def ended_by_signal() -> asyncio.Event:
    """Return an event of the running loop that SIGINT and SIGTERM set, the ordinary end of what serves."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


async def output_closed() -> None:
    """Return when standard output is a pipe that nobody reads any more, else never."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        await asyncio.Event().wait()
    while not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        await asyncio.sleep(_LOOK_S)
    give_up_output()


def machine() -> dict[str, object]:
    """Return what a figure was measured on."""
    return {"python": platform.python_version(), "system": platform.system(), "processors": os.cpu_count()}
