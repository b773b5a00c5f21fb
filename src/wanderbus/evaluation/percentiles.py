"""Percentiles of measured values."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that ``share`` of all are at or below; not a number if there are none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]
