"""Waiting of ``wanderbus pub --outbox``, with an agent whose broker is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from wanderbus.cli.pub_publisher import UNDER_WAY_MAX, PublishResults, events_given, publish_through_outbox
from wanderbus.client.reports import OutboxSize
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event


class SlowAgent:
    """It stores at once, and its broker takes some now and then, the first when ``begins_at`` are waiting."""

    def __init__(self, begins_at: int = 1) -> None:
        self.waiting = self.most = 0
        self.begins_at = begins_at
        self.at_exit: int | None = None

    status = "CONNECTED"

    async def connected(self) -> None:
        """It is."""

    @property
    def outbox(self) -> OutboxSize:
        return OutboxSize(self.waiting, self.waiting)

    async def __aenter__(self) -> Self:
        self.taking = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.at_exit = self.waiting
        self.taking.cancel()

    async def publish(
        self, subject: str, attributes: Mapping[str, Any], *, published_us: int | None, outbox: bool
    ) -> None:
        assert outbox
        assert published_us is None
        self.waiting += 1
        self.most = max(self.most, self.waiting)

    def outbox_refusals(self) -> AsyncIterator[Any]:
        return events_given()

    async def _take(self) -> None:
        while True:
            await asyncio.sleep(0.0001)
            if self.waiting >= self.begins_at:
                self.begins_at = 0
                self.waiting = max(0, self.waiting - 8)


def numbered(count: int) -> list[Event]:
    return [Event("Departure", {"n": n}) for n in range(count)]


async def bad_line_after(*events: Event) -> AsyncIterator[Event]:
    async for event in events_given(*events):
        yield event
    raise ConfigurationError("standard input, line 2")


def publish(agent: Any, events: AsyncIterator[Event]) -> None:
    asyncio.run(
        publish_through_outbox(
            agent, Path("out.db"), events, PublishResults(as_json=False, is_for_each=True), patience_s=10
        )
    )


def test_it_ends_when_the_broker_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    agent = SlowAgent()
    publish(agent, events_given(*numbered(100)))
    assert agent.at_exit == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-2:] == ["stored 100", "published 100, of which 0 were left from earlier"]
    assert printed.err == ""


def test_so_it_is_when_the_input_is_at_fault(capsys: pytest.CaptureFixture[str]) -> None:
    agent = SlowAgent()
    with pytest.raises(ConfigurationError, match="line 2"):
        publish(agent, bad_line_after(*numbered(1)))
    assert agent.at_exit == 0
    assert capsys.readouterr().out == "stored 1\n"


def test_no_more_is_read_than_the_outbox_has_room_for() -> None:
    agent = SlowAgent(begins_at=UNDER_WAY_MAX)
    publish(agent, events_given(*numbered(3 * UNDER_WAY_MAX)))
    assert agent.most == UNDER_WAY_MAX
