"""Delivery in a domain is that of a single server, whatever the merging, the engine and the servers of the users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conditions import Conditions, EngineBeside, OwnEngine
from tests.conformance.delivery import Delivery
from tests.conformance.domain_conditions import DomainConditions, DomainWorld, Placement
from wanderbus.errors import Refused
from wanderbus.runtime.services import backoff

APART, AT_LEADER = Placement(1, 2), Placement(0, 0)

COMBINATIONS = [
    (APART, "none", OwnEngine),
    (APART, "perfect", OwnEngine),
    (APART, "imperfect", OwnEngine),
    (APART, "adaptive", OwnEngine),
    (APART, "perfect", EngineBeside),
    (Placement(0, 1), "imperfect", EngineBeside),
    (Placement(1, 0), "perfect", OwnEngine),
    (Placement(1, 1), "adaptive", EngineBeside),
    (AT_LEADER, "none", OwnEngine),
]


def _named(combination: tuple[Placement, str, type]) -> str:
    (publisher, subscriber), merging, engine = combination
    return f"{publisher}-{subscriber}-{merging}-{engine.__name__}"


@pytest.fixture(params=COMBINATIONS, ids=_named)
def conditions(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Conditions]:
    """A domain with one of the combinations; its leader looks for the engine often."""
    monkeypatch.setattr(backoff, "PAUSE_S_MIN", 0.02)
    monkeypatch.setattr(backoff, "PAUSE_S_MAX", 0.02)
    placement, merging, engine = request.param
    world = DomainWorld(tmp_path, placement, merging, is_one_channel=engine is EngineBeside)
    made = DomainConditions(world, engine())
    yield made
    made.kill_engine()


class TestDelivery(Delivery):
    """Every combination."""

    def test_t06_history_and_new_events_join_without_a_seam(self, conditions: Conditions) -> None:
        """The history of a channel is at its leader; elsewhere such a subscription is refused."""
        assert isinstance(conditions, DomainConditions)
        if conditions.is_at_leader:
            super().test_t06_history_and_new_events_join_without_a_seam(conditions)
        else:
            with pytest.raises(Refused, match="are in the log of"):
                super().test_t06_history_and_new_events_join_without_a_seam(conditions)
