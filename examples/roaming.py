"""Roaming: the subscriber changes its address three times while quotes flow, and misses none.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/roaming.py``.
The addresses are of the loopback network, so it needs Linux and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import wanderbus

QUOTES = 90
PAUSE_S = 0.01
PLACES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


async def trade(exchange: wanderbus.Agent) -> None:
    """Publish numbered quotes, one every few milliseconds."""
    for number in range(QUOTES):
        await exchange.publish("StockExchange", {"Stock": "PETR4", "Price": 24.0, "Number": number})
        await asyncio.sleep(PAUSE_S)


async def roam(traveller: wanderbus.Agent) -> None:
    """Go from place to place; nothing is announced to anybody beforehand."""
    for place in PLACES:
        await asyncio.sleep(QUOTES * PAUSE_S / (len(PLACES) + 1))
        await traveller.rebind(place)
        print(f"moved to {place}")


async def listen(notifications: wanderbus.api.notifications.Notifications) -> list[int]:
    """Return the numbers of the quotes, in the order in which they came, up to the last one."""
    numbers: list[int] = []
    async for notification in notifications:
        numbers.append(notification.event["Number"])
        if numbers[-1] == QUOTES - 1:
            break
    return numbers


