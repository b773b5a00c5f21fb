"""Three servers of one event domain with decentralised channels (SPEC K-04 to K-08)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.api.event_domain import READERS, Domain
from tests.api.world import nothing_more, numbers, run, service

NAMES = ("s1", "s2", "s3")


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain", keys='model = "decentralised"')


def test_every_subscriber_gets_the_events_of_every_server_once(domain: Domain) -> None:
    async def story() -> None:
        async with domain.servers() as servers, AsyncExitStack() as stack:
            subject = domain.subject_of("s2")
            readers = []
            for server, name in READERS.items():
                agent = await stack.enter_async_context(domain.agent(server, name))
                readers.append(await stack.enter_async_context(agent.subscribe(subject, "n >= 0")))
            bobs = {name: await stack.enter_async_context(domain.agent(name, "bob")) for name in NAMES}
            for n in range(30):
                identity = await bobs[NAMES[n % 3]].publish(subject, {"n": n})
                assert identity.origin == service(servers[NAMES[n % 3]]).broker.state.server
            await bobs["s1"].publish(subject, {"n": -1})
            for reader in readers:
                assert set(await numbers(reader, 30)) == set(range(30))
                await nothing_more(reader)

    run(story())


def test_replies_follow_their_causes_while_the_channels_server_is_gone(domain: Domain) -> None:
    """A question at s1, an answer at s2 and the reader at s3: the leader of the channel takes no part (SPEC K-08)."""
    domain = Domain(domain.directory.parent / "four", 4, keys='model = "decentralised"')

    async def story() -> None:
        subject = domain.subject_of("s4")
        async with AsyncExitStack() as stack:
            for name in NAMES:
                await stack.enter_async_context(domain.server(name))
            async with domain.server("s4"):
                carol = await stack.enter_async_context(domain.agent("s3", "carol"))
                heard = await stack.enter_async_context(carol.subscribe(subject))
                bob = await stack.enter_async_context(domain.agent("s2", "bob"))
                questions = await stack.enter_async_context(bob.subscribe(subject, "n < 100"))
                alice = await stack.enter_async_context(domain.agent("s1"))

            async def answer() -> None:
                async for question in questions:
                    await bob.publish(subject, {"n": int(str(question.event["n"])) + 100})

            answering = asyncio.create_task(answer())
            for n in range(20):
                await alice.publish(subject, {"n": n})
            found = await numbers(heard, 40)
            answering.cancel()
            assert set(found) == {*range(20), *range(100, 120)}
            for n in range(20):
                assert found.index(n) < found.index(n + 100)
            assert [each for each in found if each in range(20)] == list(range(20))

    run(story())


def test_events_wait_for_a_server_that_is_down(domain: Domain) -> None:
    async def story() -> None:
        subject = domain.subject_of("s1")
        async with domain.server("s1"), AsyncExitStack() as stack:
            async with domain.server("s2"), domain.server("s3"):
                carol = await stack.enter_async_context(domain.agent("s3", "carol"))
                heard = await stack.enter_async_context(carol.subscribe(subject))
                bob = await stack.enter_async_context(domain.agent("s1", "bob"))
            await bob.publish(subject, {"n": 7})
            for name in ("s2", "s3"):
                await stack.enter_async_context(domain.server(name))
            assert await numbers(heard, 1) == [7]

    run(story())


def test_both_models_meet_in_one_domain(tmp_path: Path) -> None:
    tables = '[channels.Chat]\nmodel = "decentralised"\nmerging = "none"\n'
    domain = Domain(tmp_path / "domain", tables=tables)

    async def story() -> None:
        ordered = domain.subject_of("s3")
        async with domain.servers() as servers, AsyncExitStack() as stack:
            alice = await stack.enter_async_context(domain.agent("s1"))
            bob = await stack.enter_async_context(domain.agent("s2", "bob"))
            everything = await stack.enter_async_context(alice.subscribe("*"))
            for n in range(6):
                name, publisher = ("s1", alice) if n % 4 < 2 else ("s2", bob)
                identity = await publisher.publish("Chat" if n % 2 else ordered, {"n": n})
                # The leader of an ordered channel accepts its events; of a decentralised one, the publisher's server.
                assert identity.origin == service(servers[name if n % 2 else "s3"]).broker.state.server
            assert set(await numbers(everything, 6)) == set(range(6))
            await nothing_more(everything)

    run(story())
