"""Standard error of Spark's Java, without the lines that are no news to anybody (SPEC T-11)."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STANDARD_ERROR: Final = 2
_ENDS_S_MAX: Final = 1.0

_NO_NEWS: Final = re.compile(
    rb"WARNING: Using incubator modules"  # Java, of the module with which Spark computes vectors
    rb"|(Starting )?Streaming TransformWithState\w* Python worker"  # Spark's driver, when a query with state begins
)


@contextmanager
def filtered_java_output() -> Iterator[None]:
    """Let a Java that is started in the block write to standard error through a filter.

    It is a pipe that a thread reads until Java and all that it has started have ended. If the block fails, everything
    that was written by then is out when the error is raised.
    """
    outside = os.dup(_STANDARD_ERROR)
    reading, writing = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(reading, outside), name="wanderbus-java-output", daemon=True)
    thread.start()
    os.dup2(writing, _STANDARD_ERROR)
    try:
        yield
    except BaseException:
        _restore(outside, writing)
        thread.join(_ENDS_S_MAX)
        raise
    _restore(outside, writing)


def _restore(outside: int, writing: int) -> None:
    os.dup2(outside, _STANDARD_ERROR)
    os.close(writing)


def _pass_on(reading: int, outside: int) -> None:
    """Copy the lines, and leave out those without news with the empty lines behind them."""
    is_left_out = False
    with os.fdopen(reading, "rb") as lines, os.fdopen(outside, "wb", buffering=0) as output:
        for line in lines:
            is_left_out = bool(_NO_NEWS.match(line)) or (is_left_out and not line.strip())
            if not is_left_out:
                output.write(line)
