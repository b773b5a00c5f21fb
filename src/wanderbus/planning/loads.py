"""Load of a subject: the processor time that its events take, estimated from counts (SPEC T-10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wanderbus.subscription import EVERY_SUBJECT


class Activity(msgspec.Struct, frozen=True):
    """Events of a subject in some time, the notifications that they generated, and the bytes of both in the log."""

    events: int = 0
    notifications: int = 0
    log_bytes: int = 0


class SubjectInterest(msgspec.Struct, frozen=True):
    """Interest in a subject, in numbers of filters."""

    subscriptions: int = 0
    filters: int = 0
    """Conjunctions of the subscriptions, each counted once."""
    uncovered: int = 0
    """Those that no other one of the same structure covers."""
    merged: int = 0
    """Conjunctions after perfect merging: the filters that a domain propagates, and matches events against."""
    rejected: int = 0
    """Subscriptions whose expression cannot be parsed; no other number counts them."""

    def __add__(self, other: SubjectInterest) -> SubjectInterest:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return SubjectInterest(*(mine + its for mine, its in pairs))


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Processor time of a server in microseconds; only the ratios matter for a plan."""

    event_us: float = 35.0
    """One event that is published and stored."""
    notification_us: float = 20.0
    """One notification that is queued, sent and acknowledged."""
    filter_us: float = 0.000_66
    """One event matched against one filter of an index."""
    log_byte_us: float = 0.001
    """One byte of the log."""


WEIGHTS: Final = Weights()

NO_ACTIVITY: Final = Activity()
NO_INTEREST: Final = SubjectInterest()


def load_us(activity: Activity, interest: SubjectInterest, weights: Weights = WEIGHTS) -> int:
    """Return the load of a subject in whole microseconds of one processor: at least 0.

    An event is matched against the merged filters, which are those that a domain propagates.
    """
    load = activity.events * (weights.event_us + interest.merged * weights.filter_us)
    load += activity.notifications * weights.notification_us + activity.log_bytes * weights.log_byte_us
    return round(load)


def loads_of(
    activities: Mapping[str, Activity], interests: Mapping[str, SubjectInterest], weights: Weights = WEIGHTS
) -> dict[str, int]:
    """Return the load of each subject that has events or subscriptions; one without events has the load 0.

    Interest in every subject (``*``) counts for each of them.
    """
    of_every = interests.get(EVERY_SUBJECT, NO_INTEREST)
    return {
        each: load_us(activities.get(each, NO_ACTIVITY), interests.get(each, NO_INTEREST) + of_every, weights)
        for each in sorted((activities.keys() | interests.keys()) - {EVERY_SUBJECT})
    }
