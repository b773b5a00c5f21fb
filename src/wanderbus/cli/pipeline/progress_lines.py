"""Lines of progress on standard error, not more often than somebody reads them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from wanderbus.cli.output import print_progress

if TYPE_CHECKING:
    from wanderbus.pipeline.operation.query_progress import RunProgress

PROGRESS_EACH_S: Final = 1.8
"""Least time between two lines."""


class ProgressLines:
    """Prints lines of progress, at most one every :data:`PROGRESS_EACH_S` seconds; the first after ``silent_s``."""

    def __init__(self, *, silent_s: float = 0.0) -> None:
        self._next_s = time.monotonic() + silent_s

    def show(self, line: str) -> None:
        """Print the line, unless another one was printed just before."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_EACH_S
            print_progress(line)


def progress_line(found: RunProgress) -> str:
    """Return the progress of a job over a log in words."""
    log = f"{found.server}: " if found.server else ""
    return f"{log}record {found.offset}, {found.records_per_s:.0f} records/s, {found.lag} behind"
