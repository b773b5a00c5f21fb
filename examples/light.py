"""A lightweight client reads events of an agent, reboots, and goes on from the state that it has stored.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/light.py``.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import wanderbus
from wanderbus.lightweight import Client


def read_one(port: int, state: bytes) -> tuple[float, bytes]:
    """Live as the device until one reading has arrived; return it, and the state to store with it."""
    with Client("127.0.0.1", port, "meter", "tick", device="meter-7", state=state) as device:
        device.subscribe("Reading", "Celsius > 20")
        item = device.receive(30.0)
        assert item is not None
        stored = device.state
        device.ack()
        if state:
            device.publish("Read", {"device": "meter-7"})
        return item.attributes["Celsius"], stored


async def main(directory: Path) -> None:
    """Publish two readings, the second while the device is off."""
    users = {"investor": "patience", "meter": "tick"}
    data = directory / "data"
    async with wanderbus.Server(domain="localhost", data_dir=data, users=users, port=0, light="0") as server:
        assert server.light_address is not None
        host, port = server.address
        async with (
            wanderbus.connect(
                "sip:investor@localhost", password="patience", server=f"{host}:{port}", state_dir=directory / "investor"
            ) as investor,
            investor.subscribe("Read") as read,
        ):
            first = asyncio.create_task(asyncio.to_thread(read_one, server.light_address[1], b""))
            while not first.done():
                await investor.publish("Reading", {"Celsius": 21.5})
                await asyncio.sleep(0.2)
            celsius, state = await first
            print(f"an agent publishes, the device reads {celsius}")
            await investor.publish("Reading", {"Celsius": 22.5})
            print("the device reboots; 22.5 is published meanwhile")
            while celsius < 22.0:
                celsius, state = await asyncio.to_thread(read_one, server.light_address[1], state)
            print(f"the device reads {celsius}, and publishes")
            print("the agent reads", dict((await anext(read)).event.attributes))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
