"""Fixtures: a world without loss, and two parties in a session in it."""

from __future__ import annotations

import pytest

from tests.mobility.world import Talk, World, established


@pytest.fixture
def world() -> World:
    """A world without loss."""
    return World()


@pytest.fixture
def talk() -> Talk:
    """Two parties in a session, in a world without loss."""
    return established()
