"""Ordinary use in extraordinary quantity: users who connect and leave, publish without end, or read nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterable

import wanderbus
from hostile.attack import Attack, Report, Target
from hostile.users import connected
from wanderbus.errors import WanderbusError

NOISE = "Noise"
GOOD_SUBJECT = "Fact"
UNACKNOWLEDGED = 200


async def _churn(target: Target) -> Report:
    """Connect and leave, as quickly as the server allows."""
    until = time.monotonic() + target.seconds

    async def one(user: str) -> int:
        sessions = 0
        while time.monotonic() < until:
            with contextlib.suppress(WanderbusError, TimeoutError):
                async with asyncio.timeout(max(0.1, until - time.monotonic())), connected(target, user):
                    sessions += 1
        return sessions

    return {"sessions": sum(await asyncio.gather(*(one(user) for user in ("mallory", "trudy", "oscar", "sybil"))))}


async def _publish(target: Target, subject: str) -> Report:
    until = time.monotonic() + target.seconds
    counted = Counter[str]()
    slots = asyncio.Semaphore(UNACKNOWLEDGED)
    tasks: set[asyncio.Task[None]] = set()

    async def one(agent: wanderbus.Agent) -> None:
        try:
            await agent.publish(subject, {"By": "mallory", "Number": 0, "At": 0.0, "Text": "x" * 500})
            counted["published"] += 1
        except WanderbusError:
            counted["refused"] += 1
        finally:
            slots.release()

    async def read(notifications: AsyncIterable[object]) -> None:
        async for _ in notifications:
            counted["delivered"] += 1

    readers, publishers = connected(target, "trudy"), connected(target, "mallory")
    async with readers as reader, reader.subscribe(NOISE) as notifications, publishers as agent:
        reading = asyncio.create_task(read(notifications))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                while True:
                    await slots.acquire()
                    task = asyncio.create_task(one(agent))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
        for doing in (reading, *tasks):
            doing.cancel()
    return {**counted, "published_per_s": counted["published"] / target.seconds}


async def _publish_noise(target: Target) -> Report:
    return await _publish(target, NOISE)


async def _read_nothing(target: Target) -> Report:
    """Subscribe three times to all that the good agents publish, and read nothing of it."""
    async with connected(target, "mallory") as agent, contextlib.AsyncExitStack() as stack:
        for expression in ("", "Number > 0", "Number > 1"):
            await stack.enter_async_context(agent.subscribe(GOOD_SUBJECT, expression))
        await asyncio.sleep(target.seconds)
    return {"subscriptions": 3}


ATTACKS = (
    Attack("churn", "own", "four users connect and leave as quickly as they can", _churn),
    Attack(
        "publishing_flood",
        "own",
        "a user publishes as fast as it can, with 200 unacknowledged, to one who reads",
        _publish_noise,
        user_input=True,
    ),
    Attack(
        "unread",
        "own",
        "a user subscribes three times to all that good agents publish, and reads nothing",
        _read_nothing,
        user_input=True,
    ),
)
