"""Delivery is the same with the broker's own engine and with one beside it (SPEC T-06)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.world import World
from tests.conformance.conditions import Conditions, EngineBeside, OwnEngine
from tests.conformance.delivery import Delivery
from wanderbus.runtime.services import backoff


@pytest.fixture(params=[OwnEngine, EngineBeside], ids=["broker", "engine beside it"])
def conditions(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Conditions]:
    """A server with one of the engines, which is looked for often."""
    monkeypatch.setattr(backoff, "PAUSE_S_MIN", 0.02)
    monkeypatch.setattr(backoff, "PAUSE_S_MAX", 0.02)
    made = Conditions(World(tmp_path), request.param())
    yield made
    made.kill_engine()


class TestDelivery(Delivery):
    """Both engines."""
