"""How commands speak: results on standard output, complaints on standard error, JSON where asked."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

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


def write_json(path: Path, value: object) -> None:
    """Write a JSON file for people and programs; :class:`ConfigurationError` if it cannot be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def log_to_stderr(*, verbose: bool) -> None:
    """Let the logs go to standard error: warnings, or everything of interest."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if verbose else logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


def run_async(main: Coroutine[Any, Any, Returned]) -> Returned:
    """Run ``main`` on the fastest event loop there is."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def machine() -> dict[str, object]:
    """Return what a figure was measured on."""
    return {"python": platform.python_version(), "system": platform.system(), "processors": os.cpu_count()}
