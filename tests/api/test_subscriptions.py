"""Asking for, renewing, restricting and ending subscriptions (SPEC A-11, G-06, G-07, G-08, H-10)."""

from __future__ import annotations

import asyncio

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, nothing_more, numbers, publish, run
from wanderbus.errors import FilterError, LocalProtocolError, Refused
from wanderbus.subscription import QueuePolicy


def test_the_broker_lists_subscriptions(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            alice.subscribe(SUBJECT, "(n > 1)", lifetime_s=60.0, queue=QueuePolicy(notifications_max=5)) as first,
            alice.subscribe("Arrival", restrictions=[wanderbus.Frequency(10.0, "away")]) as second,
        ):
            held = await alice.subscriptions()
            assert list(held) == [first.subscription, second.subscription]
            assert (held[0].subject, held[0].expression, held[0].queue.notifications_max) == (SUBJECT, "(n > 1)", 5)
            assert held[0].expires_us is not None
            assert held[1].expires_us is None
            assert held[1].restrictions == (wanderbus.Frequency(10.0, "away"),)
            assert {each.owner for each in held} == {"sip:alice@localhost"}

    run(story())


def test_renewing_changes_the_end(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT, lifetime_s=0.2) as notifications:
            identity = notifications.subscription.id
            renewed = await alice.renew(identity, 60.0)
            assert renewed.id == identity
            assert renewed.expires_us is not None
            assert (await alice.renew(identity, None)).expires_us is None
            await asyncio.sleep(0.25)
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]

    run(story())


def test_x21_an_expired_subscription_is_gone_until_it_is_renewed(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT, lifetime_s=0.1) as notifications:
            await asyncio.sleep(0.15)
            await publish(alice, 1)
            await nothing_more(notifications, 0.05)
            assert await alice.subscriptions() == ()
            assert [notifications.ended] == ["expired"]
            with pytest.raises(Refused, match="it may have expired"):
                await alice.restrict(notifications.subscription.id, ())
            assert (await alice.renew(notifications.subscription.id, 60.0)).id == notifications.subscription.id
            assert [notifications.ended] == [None]
            await publish(alice, 2)
            assert await numbers(notifications, 1) == [2]

    run(story())


def test_restricting_takes_effect_at_once(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            identity = notifications.subscription.id
            restricted = await alice.restrict(identity, [wanderbus.Interval(0, 1)])
            assert restricted.restrictions == (wanderbus.Interval(0, 1),)
            await publish(alice, 1)
            assert (await alice.restrict(identity, [])).restrictions == ()
            await publish(alice, 2)
            assert await numbers(notifications, 1) == [2]

    run(story())


def test_unsubscribing_leaves_what_is_queued_and_may_be_repeated(world: World) -> None:
    """SPEC G-07."""

    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            await publish(alice, 1, 2)
            await alice.unsubscribe(notifications.subscription.id)
            await alice.unsubscribe(notifications.subscription.id)
            await alice.unsubscribe("never-there-0")
            await publish(alice, 3)
            assert await numbers(notifications, 2) == [1, 2]
            await nothing_more(notifications, 0.05)

    run(story())


def test_a_user_reaches_only_their_own(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent("alice") as alice,
            world.agent("bob") as bob,
            alice.subscribe(SUBJECT) as notifications,
        ):
            identity = notifications.subscription.id
            await bob.unsubscribe(identity)
            for request in (bob.renew(identity, 60.0), bob.restrict(identity, [])):
                with pytest.raises(Refused):
                    await request
            assert len(await alice.subscriptions()) == 1

    run(story())


def test_a_refusal_of_the_broker_is_one_clear_error(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            refused = [
                alice.subscribe("", ""),
                alice.subscribe(SUBJECT, lifetime_s=-1.0),
                alice.subscribe(SUBJECT, queue=QueuePolicy(notifications_max=0)),
                alice.subscribe(SUBJECT, restrictions=[wanderbus.Daily("25:00", "26:00")]),
                alice.subscribe(SUBJECT, restrictions=[wanderbus.Frequency(-1.0)]),
            ]
            for each in refused:
                with pytest.raises(Refused) as caught:
                    await each.__aenter__()
                assert "\n" not in str(caught.value)
            assert await alice.subscriptions() == ()

    run(story())


def test_an_expression_that_cannot_be_read_is_pointed_at_before_anything_is_sent(world: World) -> None:
    alice = wanderbus.connect("sip:alice@localhost", state_dir=world.directory)
    with pytest.raises(FilterError) as caught:
        alice.subscribe(SUBJECT, "(Dest = IAH)")
    reason, line, caret = caught.value.pointed().splitlines()
    assert line == "  (Dest = IAH)"
    assert caret.strip() == "^"
    assert "at character 7" in reason


def test_a_language_that_there_is_not_is_refused_before_anything_is_sent(world: World) -> None:
    alice = wanderbus.connect("sip:alice@localhost", state_dir=world.directory)
    with pytest.raises(FilterError, match=r"no filter language 'sql'; use one of eci, cesql, xml$"):
        alice.subscribe(SUBJECT, "Dest = 'IAH'", language="sql")


def test_u04_cesql_end_to_end(world: World) -> None:
    """From the agent's call over the data channel into the broker's index, the listing, and the delivered
    notifications.
    """

    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            alice.subscribe(SUBJECT, "n % 2 = 0 AND n > 1", language="cesql") as notifications,
        ):
            (held,) = await alice.subscriptions()
            assert (held.expression, held.language) == ("n % 2 = 0 AND n > 1", "cesql")
            await publish(alice, 1, 2, 3, 4)
            assert await numbers(notifications, 2) == [2, 4]

    run(story())


def test_a_request_that_the_broker_could_not_read_is_not_sent(world: World) -> None:
    """It would close the data channel, be sent again on the next one, and close that too, for ever."""

    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            wrong: list[object] = ["soon", object(), 10**400]
            for lifetime_s in wrong:
                with pytest.raises(LocalProtocolError, match=r"the (broker would refuse the )?request"):
                    await alice.renew(notifications.subscription.id, lifetime_s)  # type: ignore[arg-type]
            with pytest.raises(LocalProtocolError):
                await alice.unsubscribe("\ud800")
            with pytest.raises(LocalProtocolError):
                async with alice.subscribe("\udcff"):
                    pass
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]

    run(story())
