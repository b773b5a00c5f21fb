"""Section of ``bench handover``: a session moves in whose queue 64 MiB wait, while its agent reads them.

The pause is that between the last notification from the former server and the first one from the next, at the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.broker_ours import connected
from bench.broker_peer import reading
from bench.domain_servers import Cluster, cluster
from bench.streams import faults_in
from harness.reporting import Goal, goal, progress
from wanderbus.client.operator import Operator

ADMINISTRATOR: Final = "adam"

EVENT_BYTES: Final = 6_900
"""So that 64 MiB are fewer notifications than a queue may have."""

FIRST: Final = 100
"""Notifications that are read before the move is requested."""

AT_ONCE: Final = 64
WAIT_S: Final = 240.0


def measure(size: int) -> tuple[Mapping[str, Any], list[Goal]]:
    """Return a row and its goals, of a queue with ``size`` bytes."""
    count = size // (EVENT_BYTES + 100)
    progress(f"queue of {size / 2**20:.0f} MiB: {count} notifications")
    own = "--admin", ADMINISTRATOR
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(Path(directory), 3, *own, more_users=[ADMINISTRATOR]) as servers,
    ):
        row = {"section": "queue", "bytes": size, "notifications": count, **asyncio.run(_moved(servers, count))}
    return row, [
        goal("first_delivery_of_64mib_queue_ms", row["pause_ms"], "ms", most=300),
        *(goal(f"queue_{each}", row[each], "events", most=0) for each in ("lost", "repeated", "out_of_order")),
        goal("queue_moved_after_first_delivery_s", row["whole_s"], "s"),
    ]


async def _moved(servers: Cluster, count: int) -> Mapping[str, Any]:
    subject, filling = servers.led[2][0], "x" * EVENT_BYTES
    taken: list[tuple[float, int]] = []
    async with contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connected(servers.places[1], "publisher0"))
        async with connected(servers.places[0], "subscriber0") as agent, agent.subscribe(subject, keep=True):
            pass
        turns = asyncio.Semaphore(AT_ONCE)

        async def publish(number: int) -> None:
            async with turns:
                await publisher.publish(subject, {"Number": number, "Filling": filling})

        await asyncio.gather(*(publish(number) for number in range(count)))
        operator = await stack.enter_async_context(connected(servers.places[0], ADMINISTRATOR, Operator.SESSION))
        agent = await stack.enter_async_context(connected(servers.places[0], "subscriber0"))
        has_begun, is_over = asyncio.Event(), asyncio.Event()
        subscription = await stack.enter_async_context(agent.subscribe(subject, keep=True))

        async def read() -> None:
            async for notification in subscription:
                taken.append((time.monotonic(), int(str(notification.event["Number"]))))
                if len(taken) >= FIRST:
                    has_begun.set()
                if len(taken) >= count:
                    is_over.set()

        async with reading(read), asyncio.timeout(WAIT_S):
            await has_begun.wait()
            began_s = time.monotonic()
            await operator.operator.move(agent.uri, "default", "s2")
            whole_s = time.monotonic()
            await is_over.wait()
    times = [at for at, _ in taken]
    pause_s, first_s = max((later - before, later) for before, later in pairwise(times) if later >= began_s)
    return {
        "pause_ms": 1e3 * pause_s,
        "whole_s": whole_s - first_s,
        "read_s": times[-1] - times[0],
        **faults_in([[number for _, number in taken]], count),
    }
