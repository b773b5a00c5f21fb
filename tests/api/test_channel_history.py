"""K-03: the history of an ordered channel by number, at its leader, through other servers, and at a single server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import wanderbus
from tests.api.event_domain import Domain
from tests.api.world import SUBJECT, World, files, run
from wanderbus.channel_events import ChannelEvent, NumbersGone
from wanderbus.errors import Refused
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.segment_files import segment_paths


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain", tables='[parents]\nDown = "Up"\n[channels.Free]\nmodel = "decentralised"\n')


async def events(agent: wanderbus.Agent, subject: str = SUBJECT, **options: int) -> list[ChannelEvent]:
    """The events of a channel; none may be gone."""
    found = [item async for item in agent.history(subject, **options)]
    return [item for item in found if isinstance(item, ChannelEvent)]


async def publish(agent: wanderbus.Agent, *values: int, subject: str = SUBJECT) -> list[int]:
    """Publish events; return their numbers."""
    return [(await agent.publish(subject, {"n": value})).number for value in values]


def test_k03_a_range_is_the_same_through_every_server_and_has_the_numbers_of_the_leader(domain: Domain) -> None:
    async def story() -> None:
        leader, elsewhere, _ = domain.places()
        async with domain.servers(), domain.agent(leader) as alice, domain.agent(elsewhere, "bob") as bob:
            numbers = [*await publish(bob, 0, 1, 2), *await publish(alice, 3, 4), *await publish(bob, 5, 6)]
            await publish(bob, 99, subject="Other")
            for agent in (alice, bob):
                found = await events(agent)
                assert [each.number for each in found] == numbers == sorted(numbers)
                assert [each.event["n"] for each in found] == list(range(7))
                assert [each.user for each in found[2:4]] == ["sip:bob@localhost", "sip:alice@localhost"]
                assert {each.epoch for each in found} == {1}
                assert {(each.id.number == each.number) and each.size_bytes > 10 for each in found} == {True}
                middle = await events(agent, first=numbers[1], last=numbers[3])
                assert middle == found[1:4]
                assert await events(agent, newest=2) == found[-2:]
                assert await events(agent, last=numbers[4], newest=2) == found[3:5]
                assert await events(agent, first=numbers[1], newest=2) == found[-2:]
                assert await events(agent, first=numbers[-1], newest=9) == found[-1:]
                assert await events(agent, first=numbers[-1] + 1) == []

    run(story())


def test_k03_a_long_history_comes_in_pages_without_gap_or_repeat(domain: Domain) -> None:
    async def story() -> None:
        elsewhere = domain.places()[1]
        async with domain.servers(), domain.agent(elsewhere, "bob") as bob:
            await asyncio.gather(*(bob.publish(SUBJECT, {"n": value}) for value in range(300)))
            assert [each.event["n"] for each in await events(bob)] == list(range(300))
            assert [each.event["n"] for each in await events(bob, newest=270)] == list(range(30, 300))

    run(story())


def test_k03_the_history_of_a_parent_has_the_events_below_it(domain: Domain) -> None:
    async def story() -> None:
        async with domain.servers(), domain.agent("s1", "bob") as bob:
            await publish(bob, 1, subject="Up")
            await publish(bob, 2, subject="Down")
            await publish(bob, 3, subject="Up")
            assert [each.event["n"] for each in await events(bob, "Up")] == [1, 2, 3]
            assert [each.event["n"] for each in await events(bob, "Down")] == [2]

    run(story())


def test_k03_a_channel_without_numbers_or_without_its_leader_has_no_history(domain: Domain) -> None:
    async def story() -> None:
        leader, elsewhere, _ = domain.places()
        async with domain.server(elsewhere), domain.agent(elsewhere, "bob") as bob:
            with pytest.raises(Refused, match=f"{leader}, which leads the channel of '{SUBJECT}', cannot be reached"):
                await events(bob)
            with pytest.raises(Refused, match="'Free' is decentralised"):
                await events(bob, "Free")

    run(story())


def test_k03_a_user_who_may_not_subscribe_sees_no_history(domain: Domain) -> None:
    async def story() -> None:
        leader, elsewhere, _ = domain.places()
        config = BrokerConfig(may_subscribe={"sip:bob@localhost": ("Weather",)})
        await domain.started_once()
        async with (
            domain.server(leader),
            domain.server(elsewhere, broker=config),
            domain.agent(elsewhere, "bob") as bob,
        ):
            await publish(bob, 1)
            with pytest.raises(Refused, match="may not subscribe to 'Departure'"):
                await events(bob)

    run(story())


def test_k03_numbers_that_are_gone_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ServerFiles.open.__func__.__kwdefaults__, "segment_bytes_max", 1_000)  # type: ignore[attr-defined]

    async def story() -> None:
        async with world.server() as server, world.agent("bob") as bob:
            numbers = await publish(bob, *range(30))
            log = files(server).log
            for path in segment_paths(log.directory)[:3]:
                path.unlink()
            kept_from = log.oldest_offset
            assert numbers[0] < kept_from < numbers[-1]
            kept = [number for number in numbers if number >= kept_from]
            for options in ({}, {"first": numbers[0]}, {"newest": 1_000}):
                gone, *found = [item async for item in bob.history(SUBJECT, **options)]
                assert gone == NumbersGone(kept_from)
                assert [item.number for item in found if isinstance(item, ChannelEvent)] == kept
            only = [item async for item in bob.history(SUBJECT, first=kept_from)]
            assert [item.number for item in only if isinstance(item, ChannelEvent)] == kept
            assert len(only) == len(kept)

    run(story())
