"""The stock exchange: receive quotes of PETR4 below 25, and nothing else.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/stock_exchange.py``.
With the argument ``eci`` it uses the original ECI, where users are addresses and cannot move; the functions that
trade and watch are the same.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
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


async def watch(investor: wanderbus.Agent, exchange: wanderbus.Agent) -> None:
    """Print every cheap quote; a second subscription receives at most one in 15 seconds.

    A quote for both is one notification, which names both subscriptions.
    """
    at_ease = [wanderbus.Frequency(15.0)]
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
