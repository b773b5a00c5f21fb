"""History: subscriptions matched against past events, in one pass for thousands of them (SPEC T-04, B-01).

What needs Spark is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wanderbus.pipeline.history.arrivals import arrivals
from wanderbus.pipeline.history.event_files import EventFiles, Selection
from wanderbus.pipeline.history.lake_events import lake_events
from wanderbus.pipeline.history.lifetimes import (
    SubscriptionVersion,
    UserAbsence,
    absences_of,
    changes_in,
    versions_in,
    versions_of,
)
from wanderbus.pipeline.names_on_demand import names_on_demand

if TYPE_CHECKING:
    from wanderbus.pipeline.history.event_lookup import explain
    from wanderbus.pipeline.history.matches import count, match, match_places, matching_events, sample, undecided
    from wanderbus.pipeline.history.replays import replay
    from wanderbus.pipeline.history.spark_batches import Events, at_offsets

_HOMES: Final = {
    "Events": "spark_batches",
    "at_offsets": "spark_batches",
    "explain": "event_lookup",
    "replay": "replays",
    **dict.fromkeys(("count", "match", "match_places", "matching_events", "sample", "undecided"), "matches"),
}

__all__ = [
    "EventFiles",
    "Events",
    "Selection",
    "SubscriptionVersion",
    "UserAbsence",
    "absences_of",
    "arrivals",
    "at_offsets",
    "changes_in",
    "count",
    "explain",
    "lake_events",
    "match",
    "match_places",
    "matching_events",
    "replay",
    "sample",
    "undecided",
    "versions_in",
    "versions_of",
]


if not TYPE_CHECKING:
    __getattr__ = names_on_demand(__name__, _HOMES)
