"""Fixtures: a world that loses nothing, and two parties that talk in it."""

from __future__ import annotations

import pytest

from tests.mobility.world import Talk, World, established


@pytest.fixture
def world() -> World:
    """A world that loses nothing."""
    return World()


@pytest.fixture
def talk() -> Talk:
    """Two parties in a session, in a world that loses nothing."""
    return established()
