"""History: subscriptions matched against past events, in one pass for thousands of them (SPEC T-04, B-01)."""

from __future__ import annotations

from wanderbus.pipeline.history.arrivals import arrivals
from wanderbus.pipeline.history.event_files import EventFiles, Selection
from wanderbus.pipeline.history.explanation import explain
from wanderbus.pipeline.history.lake_events import lake_events
from wanderbus.pipeline.history.lifetimes import Absence, Version, absences_of, changes_in, versions_in, versions_of
from wanderbus.pipeline.history.matches import count, match, match_places, matching_events, sample
from wanderbus.pipeline.history.queries import Events, at_offsets
from wanderbus.pipeline.history.replay import replay

__all__ = [
    "Absence",
    "EventFiles",
    "Events",
    "Selection",
    "Version",
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
    "versions_in",
    "versions_of",
]
