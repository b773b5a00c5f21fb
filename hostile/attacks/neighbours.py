"""Attack by another domain that events are shared with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import wanderbus
from harness.loads import LoadEndedError
from hostile.attack import Attack, Report, Target
from hostile.lying_domain import COUNTS, ORDERS
from hostile.neighbours import LIAR, RECEIVED, SECRET, SENT
from hostile.users import connected
from wanderbus.errors import WanderbusError

SECRETS_PER_S: Final = 20.0
SETTLE_S: Final = 1.0
ATTACK_S: Final = 10.0


async def _lying_domain(target: Target) -> Report:
    """Let the domain lie while a user of the honest one publishes a type that is not shared, and another one reads."""
    until = time.monotonic() + target.seconds
    orders, counts_file = Path(target.directory, ORDERS), Path(target.directory, COUNTS)
    forged: Counter[str] = Counter()
    async with contextlib.AsyncExitStack() as stack:
        witness = await stack.enter_async_context(connected(target, "trudy"))
        wanted = [witness.subscribe(each) for each in (SENT, RECEIVED, SECRET)]
        items = await stack.enter_async_context(witness.merged(*wanted))
        reading = asyncio.create_task(_count(items, forged))
        publisher = await stack.enter_async_context(connected(target, "oscar"))
        orders.touch()
        published = 0
        while time.monotonic() < until:
            with contextlib.suppress(WanderbusError):
                await publisher.publish(SECRET, {"Number": published})
                published += 1
            await asyncio.sleep(1 / SECRETS_PER_S)
        orders.unlink()
        while not counts_file.exists():
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_S)
        reading.cancel()
    counts = json.loads(counts_file.read_text())
    if not forged[RECEIVED] or not counts.get("received") or not counts.get("closed"):
        raise LoadEndedError(f"the domains have shared nothing, or no lie was seen: {counts}, {dict(forged)}")
    admitted = forged.total() - forged[RECEIVED]
    figures = {"rumours": forged[RECEIVED], "forged_admitted": admitted, "secrets": published, "secrets_sent": 0}
    return {**figures, **counts}


async def _count(items: AsyncIterator[wanderbus.Notification | wanderbus.Gap], forged: Counter[str]) -> None:
    """Count the events that nobody of the honest domain has published, by subject; those of a third domain apart."""
    async for item in items:
        if isinstance(item, wanderbus.Notification) and "Forged" in item.event.attributes:
            origin = item.event.origin.origin if item.event.origin else ""
            forged[item.event.subject if origin.startswith(LIAR) else origin] += 1


ATTACKS = (
    Attack(
        "lying_domain",
        "",
        "another domain: forged events and origins, floods, replays, claims, paths and lives, and no acknowledgement",
        _lying_domain,
        neighbour=True,
        restarts=True,
        spares=("good_p99_ratio",),
        quick=True,
        seconds=ATTACK_S,
    ),
)
