"""Charges for merging a subscription for other servers, which its user pays by subscribing later (SPEC U-02)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from wanderbus.broker.servers.leader_messages import InterestMerged

UNCHARGED: Final = 6_400
"""Units of work that the request for a subscription already pays for."""


def charges(added: Collection[str], units: float) -> list[InterestMerged]:
    """Return the charge for a change that took so many units of work.

    Several subscriptions at once are those of a restart: they were charged when they began.
    """
    if len(added) != 1 or units <= UNCHARGED:
        return []
    return [InterestMerged(next(iter(added)), units)]
