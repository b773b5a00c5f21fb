"""Subscriptions to patterns of compound events, from a program (SPEC T-07, S-06)."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.world import World, run
from wanderbus.errors import FilterError, LocalProtocolError, PatternError, Refused

pytestmark = pytest.mark.integration

LATE = """pattern late by Tail
match A: arrival (Delay > 30) then B: departure where (B.Delay > A.Delay)
within 2 hours emit late_turnaround with Tail = A.Tail, added = B.Delay - A.Delay"""


def test_detections_are_notifications(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(pattern=LATE) as detections:
            assert (detections.subscription.subject, detections.subscription.language) == ("late_turnaround", "pattern")
            ids = [
                await alice.publish("arrival", {"Tail": "x", "Delay": 40}),
                await alice.publish("departure", {"Tail": "x", "Delay": 60}),
            ]
            found = await asyncio.wait_for(anext(detections), 10)
            assert found.event.subject == "late_turnaround"
            assert (found.event["Tail"], found.event["added"]) == ("x", 20)
            assert found.event["events"] == [str(each) for each in ids]

    run(story())


def test_state_survives_a_restart(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            await alice.subscribe(pattern=LATE, keep=True).__aenter__()
            await alice.publish("arrival", {"Tail": "x", "Delay": 40})
        async with world.server(), world.agent() as alice, alice.subscribe(pattern=LATE, keep=True) as detections:
            await alice.publish("departure", {"Tail": "x", "Delay": 60})
            assert (await asyncio.wait_for(anext(detections), 10)).event["added"] == 20

    run(story())


def test_errors_point_into_the_pattern(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            with pytest.raises(PatternError) as error:
                await alice.subscribe(pattern="match A: arrival then within 2 hours").__aenter__()
            assert error.value.pointed().splitlines()[-1].strip() == "^"
            with pytest.raises(Refused, match="begins with new events"):
                await alice.subscribe(pattern=LATE, since="earliest").__aenter__()
            with pytest.raises(LocalProtocolError, match="either a subject"):
                alice.subscribe("arrival", pattern=LATE)
            assert isinstance(error.value, FilterError)

    run(story())
