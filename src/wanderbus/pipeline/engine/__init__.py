"""Spark as the matching engine of a server (SPEC T-06; DESIGN 7.5)."""

from __future__ import annotations

from wanderbus.pipeline.engine.engine import EngineFailed, MatchingEngine
from wanderbus.pipeline.engine.progress import EngineProgress
from wanderbus.pipeline.engine.query import SETTINGS, load_in_workers, local_master

__all__ = ["SETTINGS", "EngineFailed", "EngineProgress", "MatchingEngine", "load_in_workers", "local_master"]
