"""What ``wanderbus pub --outbox`` waits for, with an agent whose broker is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest

from wanderbus.api.outbox import OutboxSize
from wanderbus.cli.publishing import UNDER_WAY_MAX, Attributes, events_given, publish_through_outbox
from wanderbus.errors import ConfigurationError


class SlowAgent:
    """It stores at once, and its broker takes one event now and then."""

    def __init__(self) -> None:
        self.waiting = self.most = 0
        self.at_exit: int | None = None

    @property
    def outbox(self) -> OutboxSize:
        return OutboxSize(self.waiting, self.waiting)

    async def __aenter__(self) -> Self:
        self.taking = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.at_exit = self.waiting
        self.taking.cancel()

    async def publish(self, subject: str, attributes: Attributes, *, outbox: bool) -> None:
        assert outbox
        self.waiting += 1
        self.most = max(self.most, self.waiting)

    def outbox_refusals(self) -> AsyncIterator[Any]:
        return events_given()

    async def _take(self) -> None:
        while True:
            await asyncio.sleep(0.0001)
            self.waiting = max(0, self.waiting - 8)


async def bad_line_after(*events: Attributes) -> AsyncIterator[Attributes]:
    async for attributes in events_given(*events):
        yield attributes
    raise ConfigurationError("standard input, line 2")


def publish(agent: Any, events: AsyncIterator[Attributes]) -> None:
    asyncio.run(publish_through_outbox(agent, Path("out.db"), "Departure", events, json=False))


def test_it_ends_when_the_broker_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    agent = SlowAgent()
    publish(agent, events_given(*[{"n": n} for n in range(100)]))
    assert agent.at_exit == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-2:] == ["stored 100", "published 100, of which 0 had been left behind"]
    assert printed.err == ""


def test_so_it_is_when_the_input_is_at_fault(capsys: pytest.CaptureFixture[str]) -> None:
    agent = SlowAgent()
    with pytest.raises(ConfigurationError, match="line 2"):
        publish(agent, bad_line_after({"n": 1}))
    assert agent.at_exit == 0
    assert capsys.readouterr().out == "stored 1\n"


def test_no_more_is_read_than_the_outbox_has_room_for() -> None:
    agent = SlowAgent()
    publish(agent, events_given(*[{"n": n} for n in range(3 * UNDER_WAY_MAX)]))
    assert agent.most == UNDER_WAY_MAX
