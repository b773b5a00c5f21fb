"""The stock exchange: hear of PETR4 below 25, and of nothing else.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/stock_exchange.py``.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import wanderbus

CHEAP = "(Stock == PETR4) and (Price < 25)"

QUOTES = (
    ("PETR4", 25.40),
    ("VALE3", 24.10),
    ("PETR4", 24.90),
    ("PETR4", 25.00),
    ("ITUB4", 19.75),
    ("PETR4", 23.15),
)


async def trade(exchange: wanderbus.Agent) -> None:
    """Publish every quote; each is durable before the next one goes out."""
    for stock, price in QUOTES:
        await exchange.publish("StockExchange", {"Stock": stock, "Price": price})


async def watch(investor: wanderbus.Agent, exchange: wanderbus.Agent) -> None:
    """Print every cheap quote; a second subscription is content with one in 15 seconds.

    A quote that both want is still one notification, which names them both.
    """
    at_ease = [wanderbus.Frequency(15.0)]
    async with (
        investor.subscribe("StockExchange", CHEAP) as every,
        investor.subscribe("StockExchange", CHEAP, restrictions=at_ease) as calm,
    ):
        await trade(exchange)
        async for notification in every:
            stock, price = notification.event["Stock"], notification.event["Price"]
            wanted_by = "both" if calm.subscription.id in notification.subscriptions else "the first alone"
            print(f"{stock} at {price:.2f}, for {wanted_by}")
            if (stock, price) == QUOTES[-1]:
                return


async def main(directory: Path) -> None:
    """Start the server, connect both users, trade and watch."""
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
        ):
            await watch(investor, exchange)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
