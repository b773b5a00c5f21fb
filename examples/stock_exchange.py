"""The stock exchange: receive quotes of PETR4 below 25, and nothing else.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/stock_exchange.py``.
With the argument ``eci`` it uses the original ECI, where users are addresses and cannot move; the functions that
trade and watch are the same.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import wanderbus

CHEAP = "(StockName == PETR4) and (Price < 25)"

QUOTES = (
    ("PETR4", 25.40),
    ("VALE3", 24.10),
    ("PETR4", 24.90),
    ("PETR4", 25.00),
    ("ITUB4", 19.75),
    ("PETR4", 23.15),
)


async def trade(exchange: wanderbus.Agent) -> None:
    """Publish every quote; each is durable before the next one is published."""
    for stock, price in QUOTES:
        await exchange.publish("StockExchange", {"StockName": stock, "Price": price})


async def zone_of_the_hour() -> str:
    """Return a time zone in which it is between 16:00 and 17:00 now, so that the example shows the hour at any time."""
    if datetime.now(UTC).minute == 59 and datetime.now(UTC).second > 50:
        await asyncio.sleep(10)  # the hour would end before the last quote
    ahead = (16 - datetime.now(UTC).hour + 11) % 24 - 11  # in the names of these zones, the sign is that of the west
    return f"Etc/GMT{-ahead:+d}"


async def watch(investor: wanderbus.Agent, exchange: wanderbus.Agent) -> None:
    """Print every cheap quote; a second subscription receives at most one in 15 seconds, from 16:00 to 17:00.

    A quote for both is one notification, which names both subscriptions.
    """
    at_ease = (wanderbus.Frequency(15.0), wanderbus.Daily("16:00", "17:00", await zone_of_the_hour()))
    async with (
        investor.subscribe("StockExchange", CHEAP) as every,
        investor.subscribe("StockExchange", CHEAP, restrictions=at_ease) as calm,
    ):
        await trade(exchange)
        async for notification in every:
            stock, price = notification.event["StockName"], notification.event["Price"]
            wanted_by = "both" if calm.subscription.id in notification.subscriptions else "the first alone"
            print(f"{stock} at {price:.2f}, for {wanted_by}")
            if (stock, price) == QUOTES[-1]:
                return


USERS = {"exchange": "bell", "investor": "patience"}


def user(server: wanderbus.Server, name: str, directory: Path) -> wanderbus.Agent:
    """Return the agent of a user; the server identifies it by its address if it serves the original ECI."""
    if server.eci_address is not None:
        host, port = server.eci_address
        return wanderbus.connect(f"eci://{host}:{port}")
    host, port = server.address
    return wanderbus.connect(
        f"sip:{name}@localhost", password=USERS[name], server=f"{host}:{port}", state_dir=directory / name
    )


async def main(directory: Path, *, eci: bool) -> None:
    """Start the server, connect both users, trade and watch."""
    async with (
        wanderbus.Server(
            domain="localhost", data_dir=directory / "data", users=USERS, port=0, eci_port=0 if eci else None
        ) as server,
        user(server, "exchange", directory) as exchange,
        user(server, "investor", directory) as investor,
    ):
        await watch(investor, exchange)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary), eci=sys.argv[1:] == ["eci"]))
