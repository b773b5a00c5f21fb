"""Growth of the time of merging with the set of filters (SPEC B-09): the slope of log time over log size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Final

import msgspec

from wanderbus.evaluation.merging.measuring import timed
from wanderbus.evaluation.merging.methods import Method, merged
from wanderbus.evaluation.merging.mixes import REFERENCE
from wanderbus.evaluation.merging.workload import workload
from wanderbus.filters import parse

SIZES: Final = (200, 400, 800, 1_600, 3_200)
TUPLES: Final = 3
TIMES: Final = 3
"""Measurements of each size; the least counts."""


class Growth(msgspec.Struct, frozen=True):
    """Seconds of merging for each size."""

    method: Method
    sizes: tuple[int, ...]
    merge_s: tuple[float, ...]

    @property
    def slope(self) -> float:
        """Return the power of the size with which time grows."""
        slope, _ = statistics.linear_regression(*(list(map(math.log, each)) for each in (self.sizes, self.merge_s)))
        return slope


def growth(method: Method, precision_min: float, seed: int) -> Growth:
    """Return the growth of ``method`` for the reference mix, with more and more filters of its ten schemas."""
    filters = [parse(each.text) for each in workload(REFERENCE, TUPLES, seed, max(SIZES)).subscriptions]

    def least_s(size: int) -> float:
        return min(timed(merged, method, filters[:size], precision_min)[1] for _ in range(TIMES))

    return Growth(method, SIZES, tuple(map(least_s, SIZES)))


def growths(precision_min: float, seed: int) -> Iterator[Growth]:
    """Yield the growth of each method."""
    return (growth(method, precision_min, seed) for method in Method if method is not Method.UNMERGED)
