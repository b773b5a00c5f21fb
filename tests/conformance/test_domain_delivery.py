"""Delivery in a domain is that of a single server, whatever the merging, the engine, the servers and their fabric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conditions import Conditions, EngineBeside
from tests.conformance.domain_conditions import APART, AT_LEADER, Combination, Placement
from tests.conformance.domain_delivery import DomainDelivery
from tests.conformance.in_process_links import Fabric
from wanderbus.runtime.services import backoff

pytestmark = pytest.mark.integration

COMBINATIONS = [
    Combination(APART, "adaptive"),
    Combination(APART, "adaptive", engines=(2,)),
    Combination(APART, "none", engines=(0, 1, 2)),
    Combination(Placement(0, 1), "imperfect", engines=(0, 1)),
    Combination(Placement(1, 0), "perfect"),
    Combination(Placement(1, 1), "adaptive", engines=(0,)),
    Combination(AT_LEADER, "perfect", engines=(0, 1)),
    Combination(APART, "imperfect", is_filtering=True),
    Combination(Placement(1, 1), "perfect", is_filtering=True),
    Combination(APART, "adaptive", model="decentralised"),
    Combination(Placement(0, 1), "perfect", model="decentralised"),
    Combination(Placement(1, 1), "imperfect", model="decentralised"),
    Combination(APART, "perfect", engines=(1,), model="decentralised"),
    Combination(Placement(0, 1), "adaptive", engines=(0, 1), model="decentralised"),
    Combination(Placement(1, 1), "none", engines=(1, 2), model="decentralised"),
    Combination(APART, "none", engines=(1, 2), model="decentralised", advertisements="required"),
    Combination(Placement(1, 1), "none", model="decentralised", advertisements="required"),
    Combination(APART, "perfect", fabric="process"),
    Combination(APART, "perfect", model="decentralised", fabric="process"),
    Combination(Placement(1, 0), "none", model="decentralised", fabric="multicast"),
]


@pytest.fixture(params=COMBINATIONS, ids=str)
def conditions(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Conditions]:
    """A domain with one of the combinations; its servers look for their engines often."""
    monkeypatch.setattr(backoff, "PAUSE_S_MIN", 0.02)
    monkeypatch.setattr(backoff, "PAUSE_S_MAX", 0.02)
    in_process, fabric = Fabric(), request.param.fabric
    if fabric == "process":
        in_process.install(monkeypatch)
    made = request.param.conditions(tmp_path, EngineBeside)
    yield made
    made.kill_engine()
    assert (in_process.messages > 0) == (fabric == "process")


class TestDelivery(DomainDelivery):
    """Every combination."""
