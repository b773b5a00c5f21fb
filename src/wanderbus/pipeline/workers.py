"""Python processes of Spark's workers, which do one task after the other."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Keep what this process has loaded by now out of the collection of garbage; do nothing from the second call on.

    Spark collects garbage after every task. With its own modules, Arrow and the compiled kernel that would take a tenth
    of a second each time. Python counts what is kept one by one, so asking whether there is any would take 16 ms.
    """
    gc.collect()
    gc.freeze()
