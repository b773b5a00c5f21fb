"""A subscriber whose server is down for seconds, and who calls another one: it waits for its session (SPEC L-04)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.api.event_domain import Domain
from tests.api.test_former_servers import alice_at, is_at
from tests.api.world import run, until
from wanderbus.peers import session_owners

pytestmark = pytest.mark.integration


def test_l04_a_subscriber_waits_for_its_server_and_gets_each_event_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_owners, "POSTPONED_S", 600.0)
    domain = Domain(tmp_path / "domain", 2)
    subject = domain.subject_of("s2")

    async def story() -> None:
        async with domain.server("s2"), AsyncExitStack() as of_s1:
            s1 = await of_s1.enter_async_context(domain.server("s1"))
            async with domain.agent("s2", "bob") as bob:
                async with alice_at(domain, "s1") as alice, alice.subscribe(subject, keep=True):
                    pass
                async with alice_at(domain, "s2") as alice, alice.subscribe(subject, keep=True) as events:
                    await until(is_at(alice, s1))
                    await bob.publish(subject, {"n": 0})
                    assert (await anext(events)).event["n"] == 0
                    await of_s1.aclose()
                    await until(lambda: alice.status == "DISCONNECTED")
                    for number in range(1, 10):
                        await bob.publish(subject, {"n": number})
                    await asyncio.sleep(1.5)
                    assert alice.status == "DISCONNECTED", "no other server serves it"
                    async with domain.server("s1") as again:
                        got = [(await anext(events)).event["n"] for _ in range(1, 10)]
                        assert got == list(range(1, 10))
                        assert is_at(alice, again)()

    run(story())
