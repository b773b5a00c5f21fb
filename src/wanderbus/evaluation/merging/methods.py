"""Methods of merging that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from wanderbus.filters import Filter
from wanderbus.filters.merging import PRECISION_MIN, MergedSet, Mode, merge


class Method(StrEnum):
    """Method of making a set of filters smaller."""

    UNMERGED = "unmerged"
    PERFECT = "perfect"
    IMPERFECT = "imperfect"
    ADAPTIVE = "adaptive"
    """Adaptive merging, between the two, up to a bound of precision (SPEC S-04). The precision is estimated from the
    filters alone, without a sample of events.
    """


_MODES: Final[dict[Method, Mode]] = {
    Method.PERFECT: "perfect",
    Method.IMPERFECT: "imperfect",
    Method.ADAPTIVE: "adaptive",
}


class Propagated(msgspec.Struct, frozen=True):
    """Updates to neighbours while subscriptions arrived one by one."""

    updates: int
    """Subscriptions that changed the set at all."""
    filters: int
    """Filters that were added to the set, and removed from it."""


def merged(method: Method, filters: Sequence[Filter], precision_min: float = PRECISION_MIN) -> list[Filter]:
    """Return the merged ``filters``; only adaptive merging uses ``precision_min``, from 0 to 1."""
    if method is Method.UNMERGED:
        return list(filters)
    return merge(filters, _MODES[method], precision_min=precision_min)


def propagations(method: Method, filters: Sequence[Filter], precision_min: float = PRECISION_MIN) -> list[Propagated]:
    """Return the updates to neighbours after each of ``filters``, in their order."""
    if method is Method.UNMERGED:
        return [Propagated(number, number) for number in range(1, len(filters) + 1)]
    kept = MergedSet(_MODES[method], precision_min=precision_min)
    so_far, history = Propagated(0, 0), []
    for number, each in enumerate(filters):
        change = kept.add(number, each)
        count = len(change.added) + len(change.removed)
        so_far = Propagated(so_far.updates + bool(change), so_far.filters + count)
        history.append(so_far)
    return history
