"""Merging of the filters between servers in one channel (SPEC B-05)."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.filters.merging import PRECISION_MIN


class Merging(NamedTuple):
    """Merging of the filters of a channel; ``precision_min`` is the bound of adaptive merging alone.

    With ``for_advertisers`` they go only to servers where publishers have advertised matching events (SPEC K-07).
    """

    mode: InterestMode = "perfect"
    precision_min: float = PRECISION_MIN
    for_advertisers: bool = False
