"""A ticker that goes where it can best be read: place, battery and network decide on which device it runs.

Each device waits as a dormant instance of the ticker. When the context asks for another device, the end point of the
session goes there, and the ticker goes on with the next tick. It starts a server of its own in a temporary directory.
Run it with ``.venv/bin/python examples/ticker.py``.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import wanderbus

TICKS = 80
PAUSE_S = 0.01
SESSION = "ticker"
DEVICES = ("phone", "desk", "kitchen")
BATTERY_LOW = 0.2


@dataclass(frozen=True)
class Context:
    """Place of the user, and battery and network of the phone."""

    place: str
    battery: float
    network: str


DAY = (
    Context("home", 0.9, "wlan"),
    Context("train", 0.7, "cellular"),
    Context("office", 0.6, "wlan"),
    Context("tunnel", 0.4, "none"),
    Context("train", 0.3, "cellular"),
    Context("home", 0.1, "wlan"),
)


def best_device(context: Context, present: str) -> str:
    """Return the device on which the ticker is read best in this context."""
    if context.place == "office":
        return "desk"
    if context.place == "home" and context.battery < BATTERY_LOW:
        return "kitchen"
    return "phone" if context.network != "none" else present


Connect = Callable[[str, str], wanderbus.Agent]


class Ticker:
    """The instances of one user's ticker, on all devices, and what they have shown."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.present = DEVICES[0]
        self.shown: list[object] = []

    async def show(self, device: str, ready: asyncio.Event | None = None) -> None:
        """Show ticks on a device until another one does, or until the last tick."""
        async with self._connect(device, SESSION) as agent, agent.subscribe("Tick", keep=True) as ticks:
            if ready is not None:
                ready.set()
            async for tick in ticks:
                self.shown.append(tick.event["Number"])
                if tick.event["Number"] == TICKS - 1:
                    return

    async def wait(self, device: str) -> None:
        """Wait until the ticker comes to a device, show it there, and wait again."""
        async with self._connect(f"{device} dormant", wanderbus.Operator.SESSION) as agent:
            while TICKS - 1 not in self.shown:
                await agent.operator.dormant(SESSION, device)
                await self.show(device)

    async def follow(self, day: tuple[Context, ...]) -> None:
        """Transfer the ticker when the context of the user changes."""
        async with self._connect("butler", wanderbus.Operator.SESSION) as agent:
            for context in day:
                await asyncio.sleep(TICKS * PAUSE_S / (len(day) + 1))
                device = best_device(context, self.present)
                if device != self.present:
                    await agent.operator.transfer(agent.uri, SESSION, device)
                    self.present = device
                print(f"{context.place}, battery {context.battery:.0%}, network {context.network}: {device}")


async def tick(exchange: wanderbus.Agent) -> None:
    """Publish numbered ticks, one every few milliseconds."""
    for number in range(TICKS):
        await exchange.publish("Tick", {"Stock": "PETR4", "Price": 24.0, "Number": number})
        await asyncio.sleep(PAUSE_S)


async def main(directory: Path) -> int:
    """Let a day pass while ticks are published; return the exit status."""
    users = {"exchange": "bell", "alice": "patience"}
    async with wanderbus.Server(domain="localhost", data_dir=directory / "data", users=users, port=0) as server:
        host, port = server.address
        place = f"{host}:{port}"

        def connect(device: str, session: str) -> wanderbus.Agent:
            state = directory / device
            return wanderbus.connect(
                "sip:alice@localhost", password="patience", server=place, session=session, state_dir=state
            )

        ticker, ready = Ticker(connect), asyncio.Event()
        exchange = wanderbus.connect(
            "sip:exchange@localhost", password="bell", server=place, state_dir=directory / "exchange"
        )
        async with exchange, asyncio.TaskGroup() as group:
            showing = group.create_task(ticker.show(ticker.present, ready))
            waiting = [group.create_task(ticker.wait(device)) for device in DEVICES]
            await ready.wait()
            following = group.create_task(ticker.follow(DAY))
            await tick(exchange)
            await following
            while TICKS - 1 not in ticker.shown:
                await asyncio.sleep(PAUSE_S)
            await showing
            for task in waiting:
                task.cancel()
    good = ticker.shown == list(range(TICKS))
    print(f"{TICKS} ticks, each once and in order" if good else f"not each once and in order: {ticker.shown}")
    return 0 if good else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(asyncio.run(main(Path(temporary))))
