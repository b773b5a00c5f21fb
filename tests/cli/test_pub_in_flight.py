"""Events in flight of ``wanderbus pub`` while a leader of channels lets them wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Self

import pytest

from wanderbus.broker.publish.held_publishes import HeldPublishes
from wanderbus.cli.pub_publisher import PublishResults, events_given, publish_directly
from wanderbus.errors import LimitExceeded
from wanderbus.event import Event, EventId
from wanderbus.protocol import size_of


class HeldAgent:
    """Its leader lets everything wait, and takes it each time nothing more has come for a while."""

    held_back = unanswered = 0

    def __init__(self) -> None:
        links: Any = SimpleNamespace(is_open=lambda _: True)
        self.held: HeldPublishes[Any] = HeldPublishes(links)
        self.link: Any = SimpleNamespace(link=1)
        self.most = 0
        self._publishing = SimpleNamespace(wait_reason="")

    async def __aenter__(self) -> Self:
        self.taking = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.taking.cancel()

    async def publish(self, subject: str, attributes: Mapping[str, Any], *, published_us: int | None) -> EventId:
        answer = asyncio.get_running_loop().create_future()
        stamped = Event(subject, dict(attributes), published_us=1_800_000_000_000_000, arrived_us=1_800_000_000_000_000)
        if not self.held.add(self.link, "pub", size_of(stamped), answer):
            raise LimitExceeded("too many events wait", "routes_unknown")
        self.most = max(self.most, len(self.held))
        await answer
        return EventId("s1", 1, 1)

    async def leave(self) -> None:
        """It is no member of a session."""

    async def _take(self) -> None:
        while True:
            before = len(self.held)
            await asyncio.sleep(0.001)
            if len(self.held) == before:
                for _, answer in list(self.held.take()):
                    answer.set_result(None)


@pytest.mark.parametrize("value_bytes", [1, 400, 20_000])
def test_a_leader_refuses_nothing_that_waits(value_bytes: int) -> None:
    agent: Any = HeldAgent()
    events = events_given(*(Event("Departure", {"n": n, "text": "x" * value_bytes}) for n in range(500)))
    asyncio.run(publish_directly(agent, events, PublishResults(as_json=True, is_for_each=True)))
    assert agent.most >= 5, "several are in flight"
