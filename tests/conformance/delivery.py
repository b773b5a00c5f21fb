"""Promises of delivery, which hold whatever engine matches the events (SPEC T-06).

A test module makes a subclass of :class:`Delivery` and a fixture ``conditions``; see ``test_delivery.py``.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import wanderbus
from tests.api.world import SUBJECT, nothing_more, numbers, publish, run
from tests.conformance.conditions import Conditions
from wanderbus.client.notifications import Notifications
from wanderbus.subscription import Frequency, QueuePolicy

OTHER = "Arrival"


async def others(agent: wanderbus.Agent, *values: int) -> None:
    """Publish events of another subject."""
    for value in values:
        await agent.publish(OTHER, {"n": value})


class Delivery:
    """Each test is a story of a server with an engine, and of users over real sockets."""

    def test_t06_every_match_comes_once_and_in_order(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(conditions.server())
                bob = await stack.enter_async_context(conditions.world.agent("bob"))
                alice = await stack.enter_async_context(conditions.world.agent())
                opened: list[Notifications[Any]] = [
                    await stack.enter_async_context(alice.subscribe(SUBJECT, expression, language=language))
                    for expression, language in (("", "eci"), ("n >= 150", "eci"), ("n % 7 = 3", "cesql"))
                ]
                await publish(bob, *range(300))
                assert await numbers(opened[0], 300) == list(range(300))
                assert await numbers(opened[1], 150) == list(range(150, 300))
                assert await numbers(opened[2], 43) == list(range(3, 300, 7))
                await nothing_more(opened[0], conditions.engine.quiet_s)

        run(story())

    def test_t06_subscriptions_that_come_and_go_hold_exactly_from_their_offsets(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with (
                conditions.server(),
                conditions.world.agent("bob") as bob,
                conditions.world.agent() as alice,
                alice.subscribe(SUBJECT, "n >= 0") as first,
            ):
                for n in range(0, 50, 5):
                    await publish(bob, *range(n, n + 2))
                    async with alice.subscribe(SUBJECT, f"n >= 0 and n < {1_000 + n}") as short:
                        await publish(bob, *range(n + 2, n + 5))
                        assert await conditions.numbers_from(n + 2, short, 3) == list(range(n + 2, n + 5))
                assert await numbers(first, 50) == list(range(50))
                await nothing_more(first, conditions.engine.quiet_s)

        run(story())

    def test_t06_an_absent_device_gets_what_it_missed(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with conditions.server(), conditions.world.agent("bob") as bob:
                async with conditions.world.agent() as alice:
                    await (await alice.subscribe(SUBJECT, keep=True)).aclose()
                await publish(bob, *range(40))
                async with conditions.world.agent() as alice, alice.subscribe(SUBJECT, keep=True) as departures:
                    await publish(bob, *range(40, 60))
                    assert await numbers(departures, 60) == list(range(60))
                    await nothing_more(departures, conditions.engine.quiet_s)

        run(story())

    def test_t06_a_full_queue_leaves_gaps_that_add_up(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            small = QueuePolicy(notifications_max=3)
            async with conditions.server(), conditions.world.agent("bob") as bob:
                async with conditions.world.agent() as alice:
                    await (await alice.subscribe(SUBJECT, keep=True, queue=small)).aclose()
                    watching = await alice.subscribe(SUBJECT, "n >= 0")
                    await publish(bob, *range(20))
                    assert await numbers(watching, 20) == list(range(20))  # the queue is full by now
                    await watching.aclose()
                async with (
                    conditions.world.agent() as alice,
                    alice.subscribe(SUBJECT, keep=True, queue=small, gaps=True) as departures,
                ):
                    seen, lost = list[int](), 0
                    while len(seen) + lost < 20:
                        item = await anext(departures)
                        if isinstance(item, wanderbus.Gap):
                            lost += item.count
                        else:
                            seen.append(int(str(item.event["n"])))
                    assert seen == [17, 18, 19]
                    assert lost == 17

        run(story())

    def test_t06_a_restriction_blocks_what_it_forbids(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with (
                conditions.server(),
                conditions.world.agent("bob") as bob,
                conditions.world.agent() as alice,
                alice.subscribe(SUBJECT) as every,
                alice.subscribe(SUBJECT, "n > -1", restrictions=[Frequency(3600.0)]) as calm,
            ):
                await publish(bob, *range(10))
                assert await numbers(every, 10) == list(range(10))
                assert await numbers(calm, 1) == [0]
                await nothing_more(calm, conditions.engine.quiet_s)

        run(story())

    def test_t06_history_and_new_events_join_without_a_seam(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with conditions.server(), conditions.world.agent("bob") as bob, conditions.world.agent() as alice:
                await publish(bob, *range(200))
                async with alice.subscribe(SUBJECT, "n >= 10", since="earliest") as departures:
                    await publish(bob, *range(200, 260))
                    assert await numbers(departures, 250) == list(range(10, 260))
                    await nothing_more(departures, conditions.engine.quiet_s)

        run(story())

    def test_t06_history_goes_on_where_it_was_when_servers_are_started_again(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with conditions.server(), conditions.world.agent("bob") as bob:
                await publish(bob, *range(100))
                async with conditions.world.agent() as alice:
                    departures = await alice.subscribe(SUBJECT, "n >= 10", since="earliest", keep=True)
                    assert await numbers(departures, 40) == list(range(10, 50))
                    await departures.aclose()
                await publish(bob, *range(100, 130))
            async with conditions.server(), conditions.world.agent("bob") as bob, conditions.world.agent() as alice:
                await publish(bob, *range(130, 150))
                async with alice.subscribe(SUBJECT, "n >= 10", since="earliest", keep=True) as departures:
                    seen = await numbers(departures, 1)
                    first = int(str(seen[0]))
                    assert first <= 50
                    assert await numbers(departures, 149 - first) == list(range(first + 1, 150))
                    await nothing_more(departures, conditions.engine.quiet_s)

        run(story())

    def test_t06_each_subject_is_in_order_for_a_subscription_to_all(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with (
                conditions.server(),
                conditions.world.agent("bob") as bob,
                conditions.world.agent() as alice,
                alice.subscribe("*") as every,
            ):
                await publish(bob, *range(20))
                await others(bob, *range(20, 30))
                await publish(bob, *range(30, 40))
                seen = await numbers(every, 40)
                assert sorted(seen, key=int) == list(range(40))  # type: ignore[arg-type]
                assert [n for n in seen if n not in range(20, 30)] == [*range(20), *range(30, 40)]
                assert [n for n in seen if n in range(20, 30)] == list(range(20, 30))

        run(story())

    def test_t06_a_server_that_is_started_again_misses_and_repeats_nothing(self, conditions: Conditions) -> None:
        async def story() -> None:
            conditions.start_engine()
            async with conditions.server(), conditions.world.agent("bob") as bob:
                async with conditions.world.agent() as alice:
                    await (await alice.subscribe(SUBJECT, keep=True)).aclose()
                    async with alice.subscribe(SUBJECT, "n >= 0") as watching:
                        await publish(bob, *range(30))
                        assert await numbers(watching, 30) == list(range(30))  # these are matched before the restart
                await publish(bob, *range(30, 50))
            async with (
                conditions.server(),
                conditions.world.agent("bob") as bob,
                conditions.world.agent() as alice,
                alice.subscribe(SUBJECT, keep=True) as departures,
            ):
                await publish(bob, *range(50, 60))
                assert await numbers(departures, 60) == list(range(60))
                await nothing_more(departures, conditions.engine.quiet_s)

        run(story())

    def test_t06_an_engine_that_is_killed_misses_and_repeats_nothing(self, conditions: Conditions) -> None:
        async def story() -> None:
            async with (
                conditions.server(),
                conditions.world.agent("bob") as bob,
                conditions.world.agent() as alice,
                alice.subscribe(SUBJECT, "n >= 0") as departures,
            ):
                for n in range(0, 60, 30):
                    await publish(bob, *range(n, n + 10))
                    conditions.start_engine()
                    await publish(bob, *range(n + 10, n + 20))
                    assert await numbers(departures, 15) == list(range(n, n + 15))
                    conditions.kill_engine()
                    await publish(bob, *range(n + 20, n + 30))
                    async with alice.subscribe(SUBJECT, "n < -1"):
                        conditions.start_engine()
                        assert await numbers(departures, 15) == list(range(n + 15, n + 30))
                        conditions.kill_engine()
                await nothing_more(departures, conditions.engine.quiet_s)

        run(story())
