"""The world of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
