"""The test application of the original ECI: stock quotes go out, and those of PETR4 below 25 come back.

Its source says nothing of users, addresses, SIP or mobility: ``connect()`` without arguments takes all of that from the
file that the environment's ``WANDERBUS_CONFIG`` names. With ``uri = "eci://HOST:PORT"`` in it, this is the original
system, where a user is an address; with ``uri = "sip:NAME@DOMAIN"`` and a password, the same program may change its
address while it runs. Run it with ``.venv/bin/python examples/eci_program.py [QUOTES [PAUSE_S]]``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import wanderbus

CHEAP = "(Stock == PETR4) and (Price < 25)"
STOCKS = ("PETR4", "VALE3", "ITUB4")


def quotes(count: int) -> list[tuple[str, float]]:
    """Return quotes whose prices go round from 22 to 28; the last is one that is waited for."""
    walk = [(STOCKS[number % 3], 22.0 + number % 7) for number in range(count - 1)]
    return [*walk, ("PETR4", 21.5)]


async def trade(agent: wanderbus.Agent, count: int, pause_s: float) -> None:
    """Publish every quote."""
    for number, (stock, price) in enumerate(quotes(count), 1):
        await agent.publish("StockExchange", {"Stock": stock, "Price": price, "Number": number})
        await asyncio.sleep(pause_s)


async def watch(notifications: AsyncIterator[wanderbus.Notification], count: int) -> None:
    """Print what comes, up to the last quote."""
    async for notification in notifications:
        event = notification.event
        print(f"quote {event['Number']}: {event['Stock']} at {event['Price']:.2f}", flush=True)
        if event["Number"] == count:
            return


async def main(count: int = 21, pause_s: float = 0.01) -> None:
    """Subscribe, trade and watch."""
    async with (
        wanderbus.connect() as agent,
        agent.subscribe("StockExchange", CHEAP) as notifications,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(watch(notifications, count))
        group.create_task(trade(agent, count, pause_s))


if __name__ == "__main__":
    asyncio.run(main(*(kind(word) for kind, word in zip((int, float), sys.argv[1:], strict=False))))
