"""Number of function calls of a computation: its work, which no other load of the machine changes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def calls_of(run: Callable[[], object]) -> int:
    """Return how many functions ``run`` calls, of Python and of C, also through what it calls."""
    count = 0

    def counts(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # finalisers and callbacks would count
    sys.setprofile(counts)
    try:
        run()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
