"""Delivery in a domain is that of a single server, whatever the merging, the engine, the servers and their fabric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.api.event_domain import multicast_table
from tests.conformance.conditions import Conditions, EngineBeside, OwnEngine
from tests.conformance.delivery import Delivery
from tests.conformance.domain_conditions import DomainConditions, DomainWorld, Placement
from tests.conformance.in_process_links import Fabric
from wanderbus.errors import Refused
from wanderbus.runtime.services import backoff

APART, AT_LEADER = Placement(1, 2), Placement(0, 0)


class Combination(NamedTuple):
    """A kind of domain, and where its users are."""

    placement: Placement
    merging: str
    engine: type[OwnEngine] | type[EngineBeside] = OwnEngine
    model: str = "ordered"
    advertisements: str = "optional"
    fabric: str = "udp"
    """Fabric between the servers: reliable UDP, that and multicast, or function calls in one process."""

    def __str__(self) -> str:
        publisher, subscriber = self.placement
        required = "-required" if self.advertisements == "required" else ""
        fabric = "" if self.fabric == "udp" else f"-{self.fabric}"
        return f"{self.model}-{publisher}-{subscriber}-{self.merging}-{self.engine.__name__}{required}{fabric}"


COMBINATIONS = [
    Combination(APART, "none"),
    Combination(APART, "perfect"),
    Combination(APART, "imperfect"),
    Combination(APART, "adaptive"),
    Combination(APART, "perfect", EngineBeside),
    Combination(Placement(0, 1), "imperfect", EngineBeside),
    Combination(Placement(1, 0), "perfect"),
    Combination(Placement(1, 1), "adaptive", EngineBeside),
    Combination(AT_LEADER, "none"),
    Combination(APART, "none", model="decentralised"),
    Combination(APART, "adaptive", model="decentralised"),
    Combination(Placement(0, 1), "perfect", model="decentralised"),
    Combination(Placement(1, 1), "imperfect", model="decentralised"),
    Combination(APART, "perfect", model="decentralised", advertisements="required"),
    Combination(Placement(0, 1), "adaptive", model="decentralised", advertisements="required"),
    Combination(Placement(1, 1), "none", model="decentralised", advertisements="required"),
    Combination(APART, "perfect", fabric="process"),
    Combination(APART, "perfect", model="decentralised", fabric="process"),
    Combination(Placement(1, 0), "none", model="decentralised", fabric="multicast"),
]


@pytest.fixture(params=COMBINATIONS, ids=str)
def conditions(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Conditions]:
    """A domain with one of the combinations; its leader looks for the engine often."""
    monkeypatch.setattr(backoff, "PAUSE_S_MIN", 0.02)
    monkeypatch.setattr(backoff, "PAUSE_S_MAX", 0.02)
    placement, merging, engine, model, advertisements, fabric = request.param
    keys = f'merging = "{merging}"\nmodel = "{model}"\nadvertisements = "{advertisements}"'
    in_process = Fabric()
    if fabric == "process":
        in_process.install(monkeypatch)
    tables = multicast_table() if fabric == "multicast" else ""
    world = DomainWorld(tmp_path, placement, keys, tables, is_one_channel=engine is EngineBeside)
    world.advertises = advertisements == "required"
    made = DomainConditions(world, engine(), has_history=placement.subscriber == 0 and model == "ordered")
    yield made
    made.kill_engine()
    assert (in_process.messages > 0) == (fabric == "process")


class TestDelivery(Delivery):
    """Every combination."""

    def test_t06_history_and_new_events_join_without_a_seam(self, conditions: Conditions) -> None:
        """The history of a channel is at its leader; elsewhere such a subscription is refused."""
        assert isinstance(conditions, DomainConditions)
        if conditions.has_history:
            super().test_t06_history_and_new_events_join_without_a_seam(conditions)
        else:
            with pytest.raises(Refused, match="are in the log"):
                super().test_t06_history_and_new_events_join_without_a_seam(conditions)
