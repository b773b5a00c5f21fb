"""Searches simulated worlds for one that notices a broken product."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Final

from wanderbus.simulation.scenario import Result

OTHERS: Final = range(1, 121)
QUIET_MAX: Final = 8
"""Seeds that a search may try without a warning, which names the seed to try first from now on."""


def is_noticed(run_seed: Callable[[int], Result], known: Iterable[int], problem: str = "") -> bool:
    """Return whether a world shows ``problem``: those known to show it first, and then others.

    Any change of a world's draws may move what a seed finds.
    """
    for tried, seed in enumerate((*known, *OTHERS), 1):
        if any(problem in each for each in run_seed(seed).problems):
            if tried > QUIET_MAX:
                warnings.warn(f"seed {seed} notices this, after {tried - 1} others that did not", stacklevel=2)
            return True
    return False
