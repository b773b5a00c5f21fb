"""Session of a user that moves from the server of one domain to that of another, in one process (SPEC L-01, L-05)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.far_domains import TwoDomains
from tests.api.world import SUBJECT, filters_settled, nothing_more, numbers, run, service
from wanderbus.errors import ConfigurationError, WanderbusError

pytestmark = pytest.mark.integration


def test_l01_a_client_moves_its_session_to_another_domain_while_events_flow(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with (
            domains.running() as servers,
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT, "n >= 0") as reader,
            domains.agent("dave", "a.example", "sesame") as dave,
            domains.agent("bob", "b.example", "hunter2") as bob,
        ):
            await filters_settled(servers[1], 1)

            async def publish(agent: Any, first: int) -> None:
                for number in range(first, first + 100):
                    await agent.publish(SUBJECT, {"n": number})
                    await asyncio.sleep(0.005)

            publishing = [asyncio.create_task(publish(dave, 0)), asyncio.create_task(publish(bob, 1_000))]
            await asyncio.sleep(0.1)
            await carol.handover("b.example")
            assert domains.owners("sip:carol@a.example") == [1]
            await asyncio.gather(*publishing)
            found: list[Any] = await numbers(reader, 200)
            assert [each for each in found if each < 1_000] == list(range(100))
            assert [each for each in found if each >= 1_000] == list(range(1_000, 1_100))
            await nothing_more(reader)
            await carol.handover("a.example/gate")
            await publish(bob, 2_000)
            assert await numbers(reader, 100) == list(range(2_000, 2_100))

    run(story())


def test_u09_both_ends_have_new_addresses_while_a_session_leaves_its_domain(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with (
            domains.running() as servers,
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT, "n >= 0") as reader,
            domains.agent("bob", "b.example", "hunter2") as bob,
        ):
            await filters_settled(servers[1], 1)

            async def publish() -> None:
                for number in range(200):
                    await bob.publish(SUBJECT, {"n": number})
                    await asyncio.sleep(0.005)

            publishing = asyncio.create_task(publish())
            for turn, domain in enumerate(("b.example", "a.example"), 5):
                await asyncio.sleep(0.1)
                moving = asyncio.create_task(carol.handover(domain))
                await asyncio.gather(carol.rebind(f"127.0.1.{turn}"), bob.rebind(f"127.0.2.{turn}"))
                await moving
            await publishing
            assert await numbers(reader, 200) == list(range(200))
            await nothing_more(reader)
            assert domains.owners("sip:carol@a.example") == [0]

    run(story())


def test_l01_an_agent_without_tls_does_not_send_its_session_where_it_cannot_follow() -> None:
    agent = wanderbus.connect("sip:carol@a.example", password="secret", server="127.0.0.1", transport="udp")
    for domain in ("b.example", "b.example/s1"):
        with pytest.raises(ConfigurationError, match="TLS only"):
            run(agent.handover(domain))


def test_l01_an_operator_moves_a_session_to_another_domain(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with (
            domains.running(),
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT) as reader,
            domains.agent("dave", "a.example", "sesame") as dave,
            domains.agent("bob", "b.example", "hunter2") as bob,
        ):
            await dave.operator.move("sip:carol@a.example", "default", "b.example/gate")
            await bob.publish(SUBJECT, {"n": 1})
            assert await numbers(reader, 1) == [1]

    run(story())


def test_l05_the_source_is_pruned_and_the_target_added(tmp_path: Path) -> None:
    """The one domain asks the other one for the events no longer, and the reverse begins."""
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with (
            domains.running() as servers,
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT, "n >= 0"),
        ):

            async def filters(*expected: int) -> None:
                while [row["filters"] for each in servers for row in service(each).machine.federation_rows()] != [
                    *expected
                ]:
                    await asyncio.sleep(0.01)

            await filters(0, 1)
            await carol.handover("b.example")
            await filters(1, 0)

    run(story())


def test_l01_a_domain_that_is_not_trusted_gets_no_session(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path, gives=False)

    async def story() -> None:
        async with domains.running(), domains.agent("carol", "a.example", "secret") as carol, carol.subscribe(SUBJECT):
            with pytest.raises(WanderbusError, match=r"a\.example gives no sessions to b\.example"):
                await carol.handover("b.example")

    run(story())
