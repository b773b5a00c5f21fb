"""Roaming: the subscriber changes its address three times while quotes flow, and misses none.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/roaming.py``.
The addresses are those of the loopback network, all of which Linux answers on.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
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


async def roam(investor: wanderbus.Agent) -> None:
    """Change the address several times; only this function knows about it."""
    for place in PLACES:
        await asyncio.sleep(QUOTES * PAUSE_S / (len(PLACES) + 1))
        await investor.rebind(place)
        print(f"moved to {place}")


async def listen(notifications: AsyncIterator[wanderbus.Notification]) -> list[object]:
    """Return the numbers of the received quotes, up to the last one."""
    numbers: list[object] = []
    async for notification in notifications:
        numbers.append(notification.event["Number"])
        if numbers[-1] == QUOTES - 1:
            break
    return numbers


async def main(directory: Path) -> int:
    """Let one user trade while the other roams and listens; return the exit status."""
    users = {"exchange": "bell", "investor": "patience"}
    async with wanderbus.Server(domain="localhost", data_dir=directory / "data", users=users, port=0) as server:
        host, port = server.address
        place = f"{host}:{port}"
        async with (
            wanderbus.connect(
                "sip:exchange@localhost", password="bell", server=place, state_dir=directory / "exchange"
            ) as exchange,
            wanderbus.connect(
                "sip:investor@localhost", password="patience", server=place, state_dir=directory / "investor"
            ) as investor,
            investor.subscribe("StockExchange", "Stock == PETR4") as notifications,
            asyncio.TaskGroup() as group,
        ):
            received = group.create_task(listen(notifications))
            group.create_task(trade(exchange))
            group.create_task(roam(investor))
    numbers = received.result()
    print(f"{QUOTES} quotes published, {len(numbers)} received over {len(PLACES) + 1} addresses")
    good = numbers == list(range(QUOTES))
    print("each once and in order" if good else f"not each once and in order: {numbers}")
    return 0 if good else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(asyncio.run(main(Path(temporary))))
