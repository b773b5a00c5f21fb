"""Python processes of Spark's workers, which do one task after the other."""

from __future__ import annotations

import gc


def settle() -> None:
    """Keep what this process has loaded by now out of the collection of garbage; do nothing from the second call on.

    Spark collects garbage after every task. With its own modules, Arrow and the compiled kernel that would take a tenth
    of a second each time.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
