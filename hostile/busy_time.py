"""Busy time before an attack: makes the server load its compiled loops, which happens once (docs/matching.md).

They take 130 MiB for any load, so an attack must not be charged with them only because it comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from harness.workers import Line
from hostile.attack import OPERATOR, Target
from hostile.users import connected
from wanderbus.broker.interest.matcher import COMPILED_FROM_EVENTS
from wanderbus.matching import SCANNED_MAX

SUBJECT: Final = "Busy"
EVENTS_AT_ONCE: Final = 100
NUMPY_S: Final = 2.0
"""Longest time to load the first kernel; events before that are not counted."""


async def be_busy(line: Line, target: Target) -> int:
    """Subscribe and publish until the server loads its compiled loops; return the number of events."""
    del line
    published = 0
    async with connected(target, OPERATOR) as agent, contextlib.AsyncExitStack() as stack:
        for number in range(2 * SCANNED_MAX):
            await stack.enter_async_context(agent.subscribe(SUBJECT, f"Number == {number} and Never == 1"))
        await asyncio.sleep(NUMPY_S)
        while published < COMPILED_FROM_EVENTS + EVENTS_AT_ONCE:
            await asyncio.gather(*(agent.publish(SUBJECT, {"Number": each}) for each in range(EVENTS_AT_ONCE)))
            published += EVENTS_AT_ONCE
    return published
