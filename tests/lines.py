"""Number of lines of Python that a call executes: its work, which no other load of the machine changes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

LINES_MAX: Final = 5_000_000
"""A call that executes more lines than this is ended: its work grows too fast to wait for."""


class CountedText(str):
    """Text whose comparisons are lines, so that a search by a function in C counts too."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def lines_of(call: Callable[[], object], most: int = LINES_MAX) -> int:
    """Return how many lines ``call`` executes, also those of what it calls; fail beyond ``most``."""
    lines = 0

    def trace(frame: FrameType, what: str, argument: object) -> Any:
        nonlocal lines
        if what == "line":
            lines += 1
            if lines > most:
                raise AssertionError(f"more than {most:,} lines")
        return trace

    before = sys.gettrace()
    gc.disable()  # finalisers would count
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines
