"""A server beside the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api import world as worlds
from tests.api.world import World
from wanderbus.runtime.services import backoff


@pytest.fixture
def pace_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that look for their engines often, and stories that may take as long as Spark does."""
    monkeypatch.setattr(worlds, "STORY_S_MAX", 120.0)
    monkeypatch.setattr(backoff, "PAUSE_S_MIN", 0.05)
    monkeypatch.setattr(backoff, "PAUSE_S_MAX", 0.1)


@pytest.fixture
def world(tmp_path: Path, pace_of_spark: None) -> World:
    """A server beside which Spark runs."""
    return World(tmp_path)
