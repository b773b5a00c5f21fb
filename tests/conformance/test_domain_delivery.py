"""Delivery in a domain is that of a single server, whatever the merging, the engine, the servers and their fabric."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.api.world import SUBJECT, nothing_more, numbers, run
from tests.conformance.conditions import Conditions, EngineBeside
from tests.conformance.domain_conditions import APART, AT_LEADER, Combination, DomainWorld, Placement
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

    def test_l04_every_event_comes_once_and_in_order_while_the_session_moves(self, conditions: Conditions) -> None:
        """The session visits all servers, and returns, while the other agent publishes."""
        world = conditions.world
        assert isinstance(world, DomainWorld)

        async def story() -> None:
            conditions.start_engine()
            async with (
                conditions.server(),
                world.agent("bob") as bob,
                world.agent() as alice,
                alice.subscribe(SUBJECT, "n >= 0") as departures,
            ):
                has_moved = asyncio.Event()

                async def publish() -> int:
                    for n in count():
                        await bob.publish(SUBJECT, {"n": n})
                        if has_moved.is_set():
                            return n + 1
                    raise AssertionError

                publishing = asyncio.create_task(publish())
                for server in (*world.servers, world.places["alice"]):
                    await alice.handover(server)
                has_moved.set()
                published = await publishing
                assert await numbers(departures, published) == list(range(published))
                await nothing_more(departures, conditions.engine.quiet_s)

        run(story())
