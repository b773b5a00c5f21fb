"""Fixture: a broker with the default bounds and an empty disk."""

from __future__ import annotations

import pytest

from tests.broker.desk import Desk


@pytest.fixture
def desk() -> Desk:
    """A broker that has just started for the first time."""
    return Desk()
