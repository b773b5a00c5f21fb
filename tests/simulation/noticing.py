"""Searches simulated worlds for one that notices a broken product."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wanderbus.simulation.scenario import Result

OTHERS: Final = range(1, 121)


def is_noticed(run_seed: Callable[[int], Result], known: Iterable[int], problem: str = "") -> bool:
    """Return whether a world shows ``problem``: those known to show it first, and then others.

    Any change of a world's draws may move what a seed finds.
    """
    return any(problem in each for seed in (*known, *OTHERS) for each in run_seed(seed).problems)
