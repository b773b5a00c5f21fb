"""Advertisements in a domain whose decentralised channels require them, and elsewhere (SPEC A-17, K-07)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import wanderbus
from tests.api.event_domain import Domain
from tests.api.world import World, nothing_more, numbers, run, service
from wanderbus.errors import Closed, FilterError, LimitExceeded, LocalProtocolError, Refused
from wanderbus.parameters.broker import BrokerConfig

NAMES = ("s1", "s2", "s3")
REFUSED = r"the broker refused the event: no advertisement of sip:bob@localhost matches this event of .* advertise it"


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain", keys='model = "decentralised"\nadvertisements = "required"')


def wanted_at(server: wanderbus.Server) -> set[str]:
    """Return the filters of other servers that a server has."""
    routes = service(server).broker.state.decentralised.routes
    return {f"{each.subject}: {each.expression}" for route in routes.routes() for each in routes.filters(route)}


def test_interest_goes_only_to_the_server_of_an_advertiser(domain: Domain) -> None:
    async def story() -> None:
        subject = domain.subject_of("s3")
        async with domain.servers() as servers, AsyncExitStack() as stack:
            alice = await stack.enter_async_context(domain.agent("s1"))
            reader = await stack.enter_async_context(alice.subscribe(subject, "n < 5"))
            bob = await stack.enter_async_context(domain.agent("s2", "bob"))
            with pytest.raises(Refused, match=REFUSED):
                await bob.publish(subject, {"n": 0})
            assert all(wanted_at(servers[name]) == set() for name in ("s2", "s3"))
            async with bob.advertise(subject, "all n < 3"):
                assert wanted_at(servers["s2"]) == {f"{subject}: n < 5"}
                assert wanted_at(servers["s3"]) == set()
                await bob.publish(subject, {"n": 1})
                with pytest.raises(Refused, match=REFUSED):
                    await bob.publish(subject, {"n": 4})
            with pytest.raises(Refused, match=REFUSED):
                await bob.publish(subject, {"n": 2})
            assert await numbers(reader, 1) == [1]
            await nothing_more(reader)

    run(story())


def test_no_event_is_lost_from_the_moment_of_the_advertisement(domain: Domain) -> None:
    """Each event is the first one behind an advertisement of its own."""

    async def story() -> None:
        subject = domain.subject_of("s1")
        async with domain.servers(), AsyncExitStack() as stack:
            alice = await stack.enter_async_context(domain.agent("s2"))
            reader = await stack.enter_async_context(alice.subscribe(subject))
            bob = await stack.enter_async_context(domain.agent("s3", "bob"))
            for n in range(10):
                async with bob.advertise(subject, f"n == {n}"):
                    await bob.publish(subject, {"n": n})
            assert await numbers(reader, 10) == list(range(10))

    run(story())


def test_a_kept_advertisement_survives_restarts_also_while_the_leader_is_away(domain: Domain) -> None:
    async def story() -> None:
        subject = domain.subject_of("s3")
        async with domain.server("s1"), AsyncExitStack() as stack:
            async with domain.server("s2"), domain.server("s3"):
                alice = await stack.enter_async_context(domain.agent("s1"))
                reader = await stack.enter_async_context(alice.subscribe(subject))
                async with domain.agent("s2", "bob") as bob, bob.advertise(subject, keep=True):
                    pass
            await stack.enter_async_context(domain.server("s2"))
            bob = await stack.enter_async_context(domain.agent("s2", "bob"))
            await bob.publish(subject, {"n": 1})
            assert await numbers(reader, 1) == [1]
            async with asyncio.timeout(5):
                advertisement = await bob.advertise(subject, keep=True)  # it counts already: the leader is not asked
            await advertisement.withdraw()
            with pytest.raises(Refused, match=REFUSED):
                await bob.publish(subject, {"n": 2})

    run(story())


def test_one_channel_can_require_advertisements(tmp_path: Path) -> None:
    keys, tables = 'model = "decentralised"', '[channels.Chat]\nadvertisements = "required"\n'
    domain = Domain(tmp_path / "domain", keys=keys, tables=tables)

    async def story() -> None:
        async with domain.servers() as servers, AsyncExitStack() as stack:
            alice = await stack.enter_async_context(domain.agent("s1"))
            everything = await stack.enter_async_context(alice.subscribe("*"))
            chat = await stack.enter_async_context(alice.subscribe("Chat"))
            bob = await stack.enter_async_context(domain.agent("s2", "bob"))
            await bob.publish("News", {"n": 1})
            with pytest.raises(Refused, match=REFUSED):
                await bob.publish("Chat", {"n": 2})
            assert "Chat: everything" not in wanted_at(servers["s2"])
            async with bob.advertise("*"):
                assert "Chat: everything" in wanted_at(servers["s2"])
                await bob.publish("Chat", {"n": 3})
            assert await numbers(everything, 2) == [1, 3]
            assert await numbers(chat, 1) == [3]

    run(story())


def test_an_advertisement_of_a_child_gets_interest_in_its_parent(tmp_path: Path) -> None:
    keys = 'model = "decentralised"\nadvertisements = "required"'
    domain = Domain(tmp_path / "domain", keys=keys, tables='[parents]\nDeparture = "Flight"\nDelay = "Departure"\n')

    async def story() -> None:
        async with domain.servers(), AsyncExitStack() as stack:
            alice = await stack.enter_async_context(domain.agent("s1"))
            flights = await stack.enter_async_context(alice.subscribe("Flight"))
            delays = await stack.enter_async_context(alice.subscribe("Delay"))
            bob = await stack.enter_async_context(domain.agent("s2", "bob"))
            async with bob.advertise("Departure"):
                await bob.publish("Departure", {"n": 1})
                await bob.publish("Delay", {"n": 2})
                with pytest.raises(Refused, match=REFUSED):
                    await bob.publish("Flight", {"n": 3})
            assert await numbers(flights, 2) == [1, 2]
            assert await numbers(delays, 1) == [2]

    run(story())


def test_a_server_alone_takes_advertisements_and_needs_none(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        async with world.server(broker=BrokerConfig(user_advertisements_max=1)) as server, world.agent() as alice:
            rows = service(server).broker.state.advertisements
            await alice.publish("Departure", {"n": 1})
            async with alice.advertise("Departure", "n < 5") as first, alice.advertise("Departure", "n < 5"):
                assert [(row.subject, row.expression) for row in rows.values()] == [("Departure", "n < 5")]
                with pytest.raises(LimitExceeded, match="maximum of 1 advertisements; withdraw one first"):
                    await alice.advertise("Departure", "n < 6")
                await first.withdraw()
                assert len(rows) == 1, "the second one has the same content"
                with pytest.raises(LocalProtocolError, match="call advertise again"):
                    async with alice.advertise("Departure", "n < 5") as third, third:
                        pass
            assert not rows
            await alice.advertise("Departure")
            assert len(rows) == 1
            await alice.close()
            assert not rows, "closing the agent withdraws what no block ends"

    run(story())


def test_invalid_advertisements_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        rights = {"*": ("News",)}
        async with world.server(broker=BrokerConfig(may_publish=rights)), world.agent() as alice:
            with pytest.raises(FilterError, match="expected") as refused:
                alice.advertise("Departure", "n <")
            assert refused.value.pointed()
            with pytest.raises(Refused, match="may not publish 'Departure'"):
                await alice.advertise("Departure")
            with pytest.raises(Refused, match="a subject has 1 to"):
                await alice.advertise("")
            advertisement = alice.advertise("News", "n > 1")
            assert repr(advertisement) == "<Advertisement of 'News' where 'n > 1', not open>"
            await advertisement.withdraw()
        with pytest.raises(Closed):
            await advertisement

    run(story())
