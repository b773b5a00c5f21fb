"""T-05: subscriptions that begin in the past, over real sockets and with a server that is started again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, nothing_more, numbers, publish, run, take
from wanderbus.errors import Refused


def test_t05_the_past_comes_first_and_new_events_follow(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, world.agent() as alice:
            await publish(bob, *range(300))
            async with alice.subscribe(SUBJECT, "n >= 10", since="earliest") as departures:
                await publish(bob, *range(300, 320))
                taken = await take(departures, 310)
                assert [each.event["n"] for each in taken] == list(range(10, 320))
                assert [each.is_history for each in taken] == sorted((each.is_history for each in taken), reverse=True)
                assert taken[0].is_history
                await nothing_more(departures)

    run(story())


def test_t05_a_time_an_event_and_a_position_are_points_in_the_past(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, world.agent() as alice:
            first, *_ = await publish(bob, 1, 2)
            await asyncio.sleep(0.02)
            now = datetime.now(UTC)
            await asyncio.sleep(0.02)
            await publish(bob, 3)
            async with alice.subscribe(SUBJECT, since=now) as later:
                (third,) = await take(later, 1)
                assert third.event["n"] == 3
                async with alice.subscribe(SUBJECT, since=first) as others:
                    assert await numbers(others, 2) == [2, 3]
                async with alice.subscribe(SUBJECT, since=third.position) as after:
                    await publish(bob, 4)
                    assert await numbers(after, 1) == [4]

    run(story())


def test_t05_a_kept_subscription_reads_on_after_a_restart_of_the_server(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            await publish(bob, *range(1_000))
        async with world.server(), world.agent() as alice:
            departures = await alice.subscribe(SUBJECT, keep=True, since="earliest")
            assert await numbers(departures, 5) == list(range(5))
            await departures.aclose()
        async with world.server(), world.agent("bob") as bob, world.agent() as alice:
            await publish(bob, 1_000)
            async with alice.subscribe(SUBJECT, keep=True, since="earliest") as departures:
                assert await numbers(departures, 996) == list(range(5, 1_001))
                await nothing_more(departures)

    run(story())


def test_t05_a_point_that_is_none_is_refused(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            for point in ("yesterday", 3.5, datetime(2026, 1, 1)):
                with pytest.raises(Refused):
                    alice.subscribe(SUBJECT, since=point)  # type: ignore[arg-type]
            with pytest.raises(Refused, match="no such event"):
                async with alice.subscribe(SUBJECT, since=wanderbus.EventId("elsewhere", 1, 1)):
                    pass

    run(story())
