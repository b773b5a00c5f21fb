"""Three servers of one event domain on loopback, and agents at each of them (SPEC J-01, K-02)."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.event_domain import READERS, Domain
from tests.api.world import PASSWORDS, SUBJECT, nothing_more, numbers, run, service
from wanderbus.errors import ConfigurationError, Refused
from wanderbus.parameters.broker import BrokerConfig


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain")


def test_an_event_published_anywhere_reaches_subscribers_everywhere_once_and_in_one_order(domain: Domain) -> None:
    async def story() -> None:
        async with domain.servers(), AsyncExitStack() as stack:
            readers = []
            for server, name in READERS.items():
                agent = await stack.enter_async_context(domain.agent(server, name))
                readers.append(await stack.enter_async_context(agent.subscribe(SUBJECT, "n >= 0")))
            bobs = [await stack.enter_async_context(domain.agent(server, "bob")) for server in ("s1", "s2", "s3")]
            for start in range(0, 30, 3):
                await asyncio.gather(*(bob.publish(SUBJECT, {"n": start + at}) for at, bob in enumerate(bobs)))
            await bobs[0].publish(SUBJECT, {"n": -1})
            seen = [await numbers(reader, 30) for reader in readers]
            assert sorted(int(str(value)) for value in seen[0]) == list(range(30))
            assert seen[1] == seen[0]
            assert seen[2] == seen[0]
            for reader in readers:
                await nothing_more(reader)

    run(story())


def test_each_link_has_a_line_when_it_opens_and_when_it_closes(
    domain: Domain, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wanderbus")

    async def story() -> None:
        async with domain.servers() as servers:
            await servers["s2"].close()
            while not any("with server s2 of the domain is closed: " in line for line in caplog.messages):
                await asyncio.sleep(0.01)

    run(story())
    opened = [
        line for line in caplog.messages if re.fullmatch(r"the link (to|from) server s2 of the domain is open", line)
    ]
    assert {line.split()[2] for line in opened} == {"to", "from"}


def test_all_ids_are_those_of_the_leader(domain: Domain) -> None:
    async def story() -> None:
        async with domain.servers() as servers, domain.agent("s1", "bob") as bob:
            for leader in ("s1", "s2", "s3"):
                identity = await bob.publish(domain.subject_of(leader), {"n": 1})
                assert identity.origin == service(servers[leader]).broker.state.server == leader

    run(story())


def test_a_subscription_counts_everywhere_when_the_block_is_entered(domain: Domain) -> None:
    async def story() -> None:
        subjects = [domain.subject_of(name) for name in ("s1", "s2", "s3")]
        async with (
            domain.servers(),
            domain.agent("s2", "bob") as bob,
            domain.agent("s3") as alice,
            alice.subscribe("*", "n > 0") as everything,
        ):
            for at, subject in enumerate(subjects):
                await bob.publish(subject, {"n": at})
            assert sorted(int(str(value)) for value in await numbers(everything, 2)) == [1, 2]
            await nothing_more(everything)

    run(story())


def test_a_subscription_to_a_parent_hears_the_child_wherever_it_is_published(tmp_path: Path) -> None:
    domain = Domain(tmp_path / "domain", tables='[parents]\nDeparture = "Flight"\n')

    async def story() -> None:
        async with domain.servers(), AsyncExitStack() as stack:
            readers = []
            for server, name in READERS.items():
                reader = await stack.enter_async_context(domain.agent(server, name))
                readers.append(await stack.enter_async_context(reader.subscribe("Flight", "n > 1")))
            bob = await stack.enter_async_context(domain.agent("s1", "bob"))
            for value in (1, 2, 3):
                await bob.publish(SUBJECT, {"n": value})
            assert [await numbers(reader, 2) for reader in readers] == [[2, 3]] * 3

    run(story())


def test_a_subscription_to_a_parent_since_the_past_hears_the_earlier_events_of_the_child(tmp_path: Path) -> None:
    domain = Domain(tmp_path / "domain", tables='[parents]\nDeparture = "Flight"\n')

    async def story() -> None:
        async with domain.servers(), domain.agent(domain.leader("Flight")) as alice:
            await alice.publish(SUBJECT, {"n": 1})
            await alice.publish("Flight", {"n": 2})
            await alice.publish("Other", {"n": 3})
            async with (
                alice.subscribe("Flight", since="earliest") as flights,
                alice.subscribe(SUBJECT, since="earliest") as departures,
            ):
                await alice.publish(SUBJECT, {"n": 4})
                assert await numbers(flights, 3) == [1, 2, 4]
                assert await numbers(departures, 2) == [1, 4]

    run(story())


def test_events_arrive_although_the_leader_was_down(domain: Domain) -> None:
    async def story() -> None:
        leader = domain.leader()
        publisher, subscriber = (name for name in ("s1", "s2", "s3") if name != leader)
        async with domain.server(publisher), domain.server(subscriber), AsyncExitStack() as stack:
            async with domain.server(leader):
                alice = await stack.enter_async_context(domain.agent(subscriber))
                bob = await stack.enter_async_context(domain.agent(publisher, "bob"))
                reader = await stack.enter_async_context(alice.subscribe(SUBJECT))
                await bob.publish(SUBJECT, {"n": 0})
            publishing = asyncio.create_task(bob.publish(SUBJECT, {"n": 1}))
            await asyncio.sleep(0.1)
            assert not publishing.done()
            async with domain.server(leader):
                await publishing
                await bob.publish(SUBJECT, {"n": 2})
                assert await numbers(reader, 3) == [0, 1, 2]
                await nothing_more(reader)

    run(story())


def test_events_wait_for_the_server_of_a_subscriber_while_it_is_down(domain: Domain) -> None:
    async def story() -> None:
        leader = domain.leader()
        publisher, subscriber = (name for name in ("s1", "s2", "s3") if name != leader)
        async with domain.server(leader), domain.server(publisher), domain.agent(publisher, "bob") as bob:
            async with (
                domain.server(subscriber),
                domain.agent(subscriber) as alice,
                alice.subscribe(SUBJECT, keep=True) as reader,
            ):
                kept = reader.subscription.id
                await bob.publish(SUBJECT, {"n": 0})
                assert await numbers(reader, 1) == [0]
            for value in (1, 2, 3):
                await bob.publish(SUBJECT, {"n": value})
            async with (
                domain.server(subscriber),
                domain.agent(subscriber) as alice,
                alice.subscribe(SUBJECT, keep=True) as reader,
            ):
                assert reader.subscription.id == kept
                assert await numbers(reader, 3) == [1, 2, 3]
                await nothing_more(reader)

    run(story())


def test_a_subscription_begins_in_the_past_at_any_server(domain: Domain) -> None:
    async def story() -> None:
        leader, elsewhere, _ = domain.places()
        await domain.started_once()
        async with domain.server(leader), domain.agent(leader) as alice:
            first = await alice.publish(SUBJECT, {"n": 0})
            for value in range(1, 5):
                await alice.publish(SUBJECT, {"n": value})
            async with domain.server(elsewhere), domain.agent(elsewhere, "bob") as bob:
                async with bob.subscribe(SUBJECT, "n >= 2", since="earliest") as reader:
                    await alice.publish(SUBJECT, {"n": 5})
                    assert await numbers(reader, 4) == [2, 3, 4, 5]
                    await nothing_more(reader)
                async with bob.subscribe(SUBJECT, since=first) as reader:
                    assert await numbers(reader, 5) == [1, 2, 3, 4, 5]
                with pytest.raises(Refused, match="in the logs of s1 and s2 and s3, without a common order"):
                    await bob.subscribe("*", since="earliest")

    run(story())


def test_a_past_is_refused_while_its_leader_is_down(domain: Domain) -> None:
    async def story() -> None:
        leader, elsewhere, _ = domain.places()
        async with domain.server(elsewhere), domain.agent(elsewhere, "bob") as bob:
            with pytest.raises(Refused, match=f"{leader}, which leads the channel of .*, cannot be reached now"):
                await bob.subscribe(SUBJECT, since="earliest")

    run(story())


def test_a_past_that_was_begun_waits_for_its_leader(domain: Domain) -> None:
    async def story() -> None:
        leader, elsewhere, _ = domain.places()
        config = BrokerConfig(unacknowledged_max=8)
        await domain.started_once()
        async with domain.server(elsewhere, broker=config), domain.agent(elsewhere, "bob") as bob:
            async with domain.server(leader), domain.agent(leader) as alice:
                for value in range(100):
                    await alice.publish(SUBJECT, {"n": value})
                reader = await bob.subscribe(SUBJECT, since="earliest")
                assert await numbers(reader, 10) == list(range(10))
            async with domain.server(leader), domain.agent(leader) as alice:
                await alice.publish(SUBJECT, {"n": 100})
                assert await numbers(reader, 91) == list(range(10, 101))
                await nothing_more(reader)

    run(story())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"event_server": None}, "event_domain: also give event_server"),
        ({"event_server": "s9"}, "has no server 's9'"),
        ({"domain": "example.org"}, "domain: example.org is not that of"),
        ({"event_domain": None}, "apply only with event_domain"),
    ],
)
def test_settings_that_do_not_fit_the_domain_are_refused(domain: Domain, changed: dict[str, Any], reason: str) -> None:
    settings: dict[str, Any] = {
        "domain": "localhost",
        "data_dir": domain.directory / "data",
        "users": PASSWORDS,
        "event_domain": domain.file,
        "event_server": "s1",
    }
    with pytest.raises(ConfigurationError, match=reason):
        wanderbus.Server(**(settings | changed))


def test_the_key_of_another_server_is_refused(domain: Domain) -> None:
    with pytest.raises(ConfigurationError, match="the key is not that of s1"):
        wanderbus.Server(
            domain="localhost",
            data_dir=domain.directory / "data",
            users=PASSWORDS,
            event_domain=domain.file,
            event_server="s1",
            event_key=domain.directory / "keys" / "s2.key",
        )
