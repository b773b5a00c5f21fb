"""Compound events on Spark, by the automaton of :mod:`wanderbus.patterns` (SPEC T-07, S-06)."""

from __future__ import annotations

from wanderbus.pipeline.patterns.detections import detect, outcomes

__all__ = ["detect", "outcomes"]
