"""Two subscriptions read as one stream, in the order of the server's log, and a look at the queues afterwards.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/merged.py``.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import wanderbus

EVENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Price", {"Stock": "PETR4", "Price": 24.9}),
    ("News", {"Text": "the port is closed"}),
    ("Price", {"Stock": "VALE3", "Price": 61.3}),
    ("Price", {"Stock": "PETR4", "Price": 22.7}),
    ("News", {"Text": "the port is open again"}),
)


async def main(directory: Path) -> None:
    """Publish prices and news; read both in one order; list what is still queued."""
    users = {"investor": "patience"}
    async with wanderbus.Server(domain="localhost", data_dir=directory / "data", users=users, port=0) as server:
        host, port = server.address
        async with wanderbus.connect(
            "sip:investor@localhost", password="patience", server=f"{host}:{port}", state_dir=directory / "investor"
        ) as investor:
            prices = investor.subscribe("Price", "Stock == PETR4", gaps=True)
            news = investor.subscribe("News")
            async with investor.merged(prices, news) as items:
                for subject, attributes in EVENTS:
                    await investor.publish(subject, attributes)
                for _ in range(4):
                    item = await anext(items)
                    print(f"lost {item.count}" if isinstance(item, wanderbus.Gap) else dict(item.event.attributes))
                items.ack()
                async for queue in investor.operator.queues():
                    print(f"{queue.user} session {queue.session}: {queue.notifications} waiting, {queue.gaps} gaps")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
