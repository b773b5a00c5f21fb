"""Grids of experiments: many independent points, run by the workers of Spark (SPEC T-09, decision 0072)."""

from __future__ import annotations

from wanderbus.pipeline.grids.points import Point, run_points
from wanderbus.pipeline.grids.results import GridResults

__all__ = ["GridResults", "Point", "run_points"]
