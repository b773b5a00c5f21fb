"""Promises of delivery in a domain: those of a single server, except for subscriptions that begin in the past."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.api.world import SUBJECT, nothing_more, numbers, run
from tests.conformance.conditions import Conditions
from tests.conformance.delivery import Delivery
from tests.conformance.domain_conditions import DomainConditions, DomainWorld
from wanderbus.errors import Refused


class DomainDelivery(Delivery):
    """The stories of :class:`Delivery` in a domain."""

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

    def test_t06_history_and_new_events_join_without_a_seam(self, conditions: Conditions) -> None:
        """The history of an ordered channel is read at its leader; that of a decentralised one is refused."""
        assert isinstance(conditions, DomainConditions)
        if conditions.has_history:
            super().test_t06_history_and_new_events_join_without_a_seam(conditions)
        else:
            with pytest.raises(Refused, match="are in the log"):
                super().test_t06_history_and_new_events_join_without_a_seam(conditions)

    def test_t06_history_goes_on_where_it_was_when_servers_are_started_again(self, conditions: Conditions) -> None:
        """The same, for a subscription that is kept."""
        assert isinstance(conditions, DomainConditions)
        if conditions.has_history:
            super().test_t06_history_goes_on_where_it_was_when_servers_are_started_again(conditions)
        else:
            with pytest.raises(Refused, match="are in the log"):
                super().test_t06_history_goes_on_where_it_was_when_servers_are_started_again(conditions)
