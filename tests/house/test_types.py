"""Types that a checker of an application sees (SPEC Q-04)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAMPLE = """
from typing import assert_type
import wanderbus
from wanderbus import Event, EventId, Gap, Notification, Notifications

async def read(agent: wanderbus.Agent, gaps: bool) -> None:
    async with agent.subscribe("S", keep=True, lifetime_s=9.0) as plain:
        assert_type(plain, Notifications[Notification])
        async for item in plain:
            assert_type(item, Notification)
    async for either in agent.subscribe("S", "n > 1", gaps=True):
        assert_type(either, Notification | Gap)
    async for chosen in agent.subscribe("S", gaps=gaps):
        assert_type(chosen, Notification | Gap)
    async for merged in agent.merged(agent.subscribe("S"), agent.subscribe("T")):
        assert_type(merged, Notification)
    async for one in agent.merged(agent.subscribe("S"), agent.subscribe("T", gaps=True)):
        assert_type(one, Notification | Gap)
    opened = await agent.subscribe("S", gaps=False)
    assert_type(await anext(opened), Notification)
    wider: Notifications[Notification | Gap] = opened
    assert_type(await agent.publish("S", {"n": 1}), EventId)
    assert_type(await agent.publish(Event("S", {}), outbox=True), None)

async def wrong(agent: wanderbus.Agent) -> None:
    async for item in agent.subscribe("S", gaps=True):
        item.event
    agent.subscribe("S", lifetime="1")
"""

WRONG = [
    'error: Item "Gap" of "Notification | Gap" has no attribute "event"  [union-attr]',
    'error: Unexpected keyword argument "lifetime" for overloaded function "subscribe" of "Agent"; did you mean '
    '"lifetime_s"?  [call-overload]',
    'error: No overload variant of "subscribe" of "Agent" matches argument types "str", "str"  [call-overload]',
]


def test_items_have_the_type_that_their_subscription_asked_for(root: Path) -> None:
    line = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), "--strict", "-c", SAMPLE]
    done = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False)
    errors = [each.partition(": ")[2] for each in done.stdout.splitlines() if ": error: " in each]
    assert errors == WRONG, done.stdout + done.stderr
