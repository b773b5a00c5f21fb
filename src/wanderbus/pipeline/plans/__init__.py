"""Counts for plans: the activity of each subject in a lake or a log, and the interest in it (SPEC T-10)."""

from __future__ import annotations

from wanderbus.pipeline.plans.activities import ActivityPeriod, lake_activities, log_activities
from wanderbus.pipeline.plans.interests import interests, lake_subscriptions, log_records, log_subscriptions

__all__ = [
    "ActivityPeriod",
    "interests",
    "lake_activities",
    "lake_subscriptions",
    "log_activities",
    "log_records",
    "log_subscriptions",
]
