"""Compound events on Spark, by the automaton of :mod:`wanderbus.patterns` (SPEC T-07, S-06)."""

from __future__ import annotations

from wanderbus.pipeline.patterns.detections import detect, outcomes
from wanderbus.pipeline.patterns.live_detections import live_outcomes
from wanderbus.pipeline.patterns.live_job import LivePattern, PatternFailed

__all__ = ["LivePattern", "PatternFailed", "detect", "live_outcomes", "outcomes"]
