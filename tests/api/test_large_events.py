"""Events above the usual bound, where the broker has a larger one (SPEC U-02): agents learn it from the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.event_domain import Domain
from tests.api.world import SUBJECT, World, run, until
from wanderbus.errors import LimitExceeded
from wanderbus.event import Notification
from wanderbus.limits import EVENT_BYTES_MAX, EVENT_BYTES_MOST
from wanderbus.parameters.broker import BrokerConfig


@pytest.mark.parametrize("data_transport", ["udp", "tcp"])
def test_one_setting_of_the_broker_allows_events_of_a_mebibyte(world: World, data_transport: Any) -> None:
    async def story() -> None:
        large = "x" * (EVENT_BYTES_MOST - 100)
        async with (
            world.server(broker=BrokerConfig(event_bytes_max=EVENT_BYTES_MOST)),
            world.agent("bob", data_transport=data_transport) as bob,
            world.agent(data_transport=data_transport) as alice,
        ):
            async with alice.subscribe(SUBJECT, "n > 0") as live:
                for n in (1, 2, 3):
                    await bob.publish(SUBJECT, {"n": n, "text": large})
                    assert (await anext(live)).event["text"] == large
            async with alice.subscribe(SUBJECT, "n > 2", since="earliest") as past:
                assert (await anext(past)).event["text"] == large
            await (await alice.subscribe(SUBJECT, "n > 5", keep=True)).aclose()
            await bob.publish(SUBJECT, {"n": 6, "text": large})
            (peeked,) = [each async for each in alice.operator.peek("sip:alice@localhost")]
            assert isinstance(peeked, Notification)
            assert peeked.event["text"] == large
            with pytest.raises(LimitExceeded, match="the limit is 1,048,576"):
                await bob.publish(SUBJECT, {"n": 1, "text": large + "x" * 200})

    run(story())


def test_a_large_event_goes_through_the_servers_of_a_domain(tmp_path: Path) -> None:
    domain = Domain(tmp_path / "domain")

    async def story() -> None:
        leader, publisher, reader = domain.places()
        async with (
            domain.servers(broker=BrokerConfig(event_bytes_max=EVENT_BYTES_MOST)),
            domain.agent(publisher, "bob") as bob,
            domain.agent(reader) as alice,
            alice.subscribe(SUBJECT) as live,
        ):
            large = "x" * (EVENT_BYTES_MOST - 100)
            assert (await bob.publish(SUBJECT, {"text": large})).origin == leader
            assert (await anext(live)).event["text"] == large

    run(story())


def test_a_usual_broker_refuses_a_large_event_and_names_the_setting(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            for size in (EVENT_BYTES_MAX, 2 * EVENT_BYTES_MAX, EVENT_BYTES_MOST - 100):
                with pytest.raises(LimitExceeded) as refused:
                    await bob.publish(SUBJECT, {"text": "x" * size})
                assert "the limit is 32,768 (`broker.event_bytes_max`)" in str(refused.value)
                assert refused.value.limit == "event_bytes_max"
            await bob.publish(SUBJECT, {"text": "x"})

    run(story())


def test_an_outbox_keeps_its_order_around_a_refused_large_event(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            alice.subscribe(SUBJECT) as live,
            world.agent("bob", offline=True) as bob,
        ):
            refusals = bob.outbox_refusals()
            for n, size in ((1, 10), (2, 200_000), (3, 10)):
                await bob.publish(SUBJECT, {"n": n, "text": "x" * size}, outbox=True)
            assert [(await anext(live)).event["n"] for _ in range(2)] == [1, 3]
            await until(lambda: bob.outbox.events == 0)
            refused = await anext(refusals)
            assert "`broker.event_bytes_max`" in refused.reason

    run(story())
