"""A subscription that begins in the past: first the events that the server has, then new ones, each once.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/since.py``.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import wanderbus


async def main(directory: Path) -> None:
    """Publish three prices, subscribe to all of them, and publish another one."""
    users = {"investor": "patience"}
    async with wanderbus.Server(domain="localhost", data_dir=directory / "data", users=users, port=0) as server:
        host, port = server.address
        async with wanderbus.connect(
            "sip:investor@localhost", password="patience", server=f"{host}:{port}", state_dir=directory / "investor"
        ) as investor:
            for price in (24.9, 22.7, 23.1):
                last = await investor.publish("Price", {"Stock": "PETR4", "Price": price})
            async with investor.subscribe("Price", "Price < 24", since="earliest") as prices:
                await investor.publish("Price", {"Stock": "PETR4", "Price": 21.5})
                for _ in range(3):
                    notification = await anext(prices)
                    print("past" if notification.id <= last else "new", dict(notification.event.attributes))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
