"""Sessions that move to a domain of several servers, and back (SPEC L-01)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.api.far_domains import TwoDomains
from tests.api.world import SUBJECT, nothing_more, numbers, run

pytestmark = pytest.mark.integration

CAROL = "sip:carol@a.example"


@pytest.mark.parametrize("one_proxy", [False, True], ids=["own proxies", "one proxy"])
@pytest.mark.parametrize("target", ["s1", "s2"])
def test_l01_a_session_moves_to_each_server_of_a_domain_of_two_and_back(
    tmp_path: Path, target: str, one_proxy: bool
) -> None:
    domains = TwoDomains(tmp_path, b_servers=2, one_proxy=one_proxy)

    async def story() -> None:
        async with (
            domains.running(),
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT, "n >= 0") as reader,
            domains.agent("dave", "a.example", "sesame") as dave,
            domains.agent("bob", "b.example", "hunter2") as bob,
        ):
            await asyncio.sleep(1)
            await dave.publish(SUBJECT, {"n": 0})
            moved = await dave.operator.move(CAROL, "default", f"b.example/{target}")
            assert moved.server == f"b.example/{target}"
            assert domains.owners(CAROL) == [int(target[1])]
            await dave.publish(SUBJECT, {"n": 1})
            await bob.publish(SUBJECT, {"n": 2})
            assert sorted(await numbers(reader, 3)) == [0, 1, 2]
            await carol.publish(SUBJECT, {"n": 3})
            assert await numbers(reader, 1) == [3]
            await nothing_more(reader)
            await carol.handover("a.example")
            assert domains.owners(CAROL) == [0]
            await bob.publish(SUBJECT, {"n": 4})
            assert await numbers(reader, 1) == [4]

    run(story())


@pytest.mark.parametrize("back", ["s1", "s2"])
def test_l01_a_session_comes_back_to_another_server_than_it_has_left(tmp_path: Path, back: str) -> None:
    """The server that it has left asks the other one before it sends the device to the other domain."""
    domains = TwoDomains(tmp_path, b_servers=2)

    async def story() -> None:
        async with (
            domains.running(),
            domains.agent("bob", "b.example", "hunter2") as bob,
            bob.subscribe(SUBJECT, "n >= 0") as reader,
            domains.agent("dave", "a.example", "sesame") as dave,
        ):
            await asyncio.sleep(1)
            await bob.handover("a.example")
            assert domains.owners("sip:bob@b.example") == [0]
            await bob.handover(f"b.example/{back}")
            assert domains.owners("sip:bob@b.example") == [int(back[1])]
            await dave.publish(SUBJECT, {"n": 1})
            assert await numbers(reader, 1) == [1]

    run(story())
