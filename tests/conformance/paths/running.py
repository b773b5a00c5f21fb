"""Commands that run in this process, and their output."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from tests.conformance.paths.reference import Refusal
from wanderbus.cli.application import run

REACHED_IN = 3
"""Times that a command is given when its server cannot be reached in time: the machine may be busy."""


def command(*words: str) -> tuple[int, list[str], str]:
    """Run a command; return its exit status, the lines of its output, and its complaint."""
    out, complaint = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(complaint):
        status = run(list(words))
    errors = [line for line in complaint.getvalue().splitlines() if not line.endswith("tasks done")]
    return status, out.getvalue().splitlines(), "\n".join(errors)


def rows_of(*words: str) -> list[dict[str, Any]] | Refusal:
    """Return the lines of JSON that a command prints, or its refusal."""
    status, lines, complaint = command(*words)
    if status:
        return refusal_in(complaint)
    return [json.loads(line) for line in lines]


async def rows_beside(module: str, *words: str) -> list[dict[str, Any]] | Refusal:
    """Return what :func:`rows_of` does, in another thread: servers in this one answer the command of ``module``."""
    with patch(f"wanderbus.cli.{module}.run_async", asyncio.run):  # the command's own handles signals in main threads
        for _ in range(REACHED_IN):
            rows = await asyncio.to_thread(rows_of, *words)
            if not (isinstance(rows, Refusal) and rows.text.startswith("cannot reach")):
                break
    return rows


def refusal_in(complaint: str) -> Refusal:
    """Return the refusal of a command, without the frame of JSON."""
    if complaint.startswith("{"):
        complaint = json.loads(complaint)["error"]["message"]
    return Refusal(complaint.removeprefix("wanderbus: "))
