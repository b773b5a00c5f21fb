"""Hostile users: agents of the public interface that abuse what they may do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import wanderbus
from hostile.attack import DOMAIN, PASSWORD, Target
from hostile.network import ATTACKER
from wanderbus.errors import WanderbusError

ANSWER_S_MAX: Final = 10.0


@contextlib.asynccontextmanager
async def connected(
    target: Target, user: str, address: str = ATTACKER, *, publisher_filtering: bool = False
) -> AsyncIterator[wanderbus.Agent]:
    """Connect as ``user`` for the block, from ``address`` of the attacker's host."""
    agent = wanderbus.connect(
        f"sip:{user}@{DOMAIN}",
        password=PASSWORD,
        server=f"{target.server}:{target.sip_port}",
        state_dir=Path(target.directory, user),
        local_address=address,
        publisher_filtering=publisher_filtering,
    )
    async with agent:
        yield agent


async def subscribe_all(
    agent: wanderbus.Agent, subject: str, expressions: Iterable[str], language: str, until: float
) -> int:
    """Subscribe to each until monotonic second ``until``; return how many the server accepted. Nobody reads them."""
    taken = 0
    for expression in expressions:
        if time.monotonic() >= until:
            break
        with contextlib.suppress(WanderbusError, TimeoutError):
            async with asyncio.timeout(ANSWER_S_MAX):
                await agent.subscribe(subject, expression, language=language, keep=True).__aenter__()
                taken += 1
    return taken
