"""Sends a file to another host over reliable UDP, sealed, also while the sending host changes its address.

``bulk.py receive PORT FILE`` on one host waits for ``bulk.py send HOST PORT FILE`` on another. Both need the same
secret, of at least 16 characters, in the environment variable ``BULK_SECRET``.
"""

from __future__ import annotations

import asyncio
import os
import sys

from wanderbus.api import rudp
from wanderbus.errors import WanderbusError

SECRET = os.environ.get("BULK_SECRET")
PART_BYTES = 32_768


async def receive(port: str, file: str) -> None:
    """Write what the first sender sends to ``file``."""
    async with rudp.listen("0.0.0.0", int(port), secret=SECRET) as listener, await anext(listener) as channel:
        with open(file, "wb") as out:
            async for part in channel:
                out.write(part)


async def send(host: str, port: str, file: str) -> None:
    """Send ``file``, and wait until all of it is confirmed."""
    async with rudp.connect(host, int(port), secret=SECRET) as channel:
        with open(file, "rb") as source:
            while part := source.read(PART_BYTES):
                await channel.send(part)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", port, file]:
            work = receive(port, file)
        case ["send", host, port, file]:
            work = send(host, port, file)
        case _:
            sys.exit("usage: bulk.py receive PORT FILE | bulk.py send HOST PORT FILE")
    try:
        asyncio.run(work)
    except WanderbusError as error:
        sys.exit(f"bulk: {error}")
