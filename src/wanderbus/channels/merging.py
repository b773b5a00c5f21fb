"""Merging of the filters between servers in one channel (SPEC B-05)."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.filters.merging import PRECISION_MIN


class Merging(NamedTuple):
    """Merging of the filters of a channel; ``precision_min`` is the bound of adaptive merging alone."""

    mode: InterestMode = "perfect"
    precision_min: float = PRECISION_MIN
